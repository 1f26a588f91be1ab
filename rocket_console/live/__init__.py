"""Figures over time: sampled while somebody watches, kept for ten minutes, drawn as SVG."""
