"""Thin loops around the pure machine: sessions, their supervisor, the runtime that owns both."""
