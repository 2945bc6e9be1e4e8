//! The router as clients see it, one module an endpoint.

mod access_token;
mod authenticate;
mod authenticate_options;
mod clocks;
mod device;
mod discovery;
mod factors;
mod federation;
mod hosts;
mod id_token_info;
mod ldap;
mod manage;
mod par;
mod passwords;
mod refresh;
mod registration;
mod scim;
mod scim_attacks;
mod scim_groups;
mod scope_groups;
mod session_actions;
mod sessions;
mod tokeninfo;
mod users;
