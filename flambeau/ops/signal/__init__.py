"""Spectra, frames of signals and windows."""
