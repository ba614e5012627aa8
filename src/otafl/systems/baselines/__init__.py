"""Simple power control that belongs to no paper alone: constant receive scaling, full inversion."""
