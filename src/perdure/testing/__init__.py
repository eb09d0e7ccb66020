"""For authors of stores and for users' own tests: a simulated disk that loses power, and stores that fail."""
