"""Making a profile: what is trained and measured, where it is kept, and what it tells of networks."""
