"""What people start: loops of their own over the air, and what they need to say which scheme at which site."""
