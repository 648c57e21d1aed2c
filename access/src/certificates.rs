//! Client certificates.
