"""What people start: experiments into folders, and loops of their own over the air."""
