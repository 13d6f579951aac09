"""From an alert to the people: who is told of it, when, or why nobody is. Pure: rows and time are passed in."""
