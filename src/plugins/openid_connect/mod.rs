//! The `openid-connect` plugin (interface 2.7): signs people in, checks tokens.
