//! The operator: turns a ProfileRequest into samplers and their uploads into one profile.
