"""The files of Qualcomm's SNPE and of the tables made from its benchmark tool."""
