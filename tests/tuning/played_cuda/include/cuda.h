// Empty: see played.h
