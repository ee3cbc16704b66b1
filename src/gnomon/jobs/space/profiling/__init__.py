"""Making a profile: training, measuring, the profile's folder, and estimates from it."""
