//! The kinds of entities, and how they refer to each other.

use super::credentials::Scheme;
use doorward_core::model::plugin;

/// A kind of entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Where secrets are looked up.
    Vault,
    /// Sets of keys.
    KeySet,
    /// Keys.
    Key,
    /// Certificates of authorities.
    CaCertificate,
    /// Certificates with their keys.
    Certificate,
    /// Server names of certificates.
    Sni,
    /// Whom requests come from.
    Consumer,
    /// Groups of consumers.
    ConsumerGroup,
    /// Who belongs to which group.
    GroupMembership,
    /// What consumers prove themselves by.
    Credential(Scheme),
    /// Groups of targets.
    Upstream,
    /// Peers of an upstream.
    Target,
    /// Where requests go.
    Service,
    /// Which requests belong to a service.
    Route,
    /// Configured filters.
    Plugin,
}

/// A field that refers to another record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The field; its value is `{"id": …}`, or a list of ids.
    pub field: &'static str,
    /// What it refers to.
    pub to: Kind,
    /// What becomes of the record when that is deleted.
    pub on_delete: OnDelete,
}

/// What becomes of a record when one that it refers to is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// It goes too.
    Cascade,
    /// It stays, and so the other one can't go.
    Restrict,
}

use OnDelete::{Cascade, Restrict};

const fn link(field: &'static str, to: Kind, on_delete: OnDelete) -> Link {
    Link {
        field,
        to,
        on_delete,
    }
}

impl Kind {
    /// Every kind; each one after those that it refers to.
    pub const ALL: [Kind; 20] = [
        Kind::Vault,
        Kind::KeySet,
        Kind::Key,
        Kind::CaCertificate,
        Kind::Certificate,
        Kind::Sni,
        Kind::Consumer,
        Kind::ConsumerGroup,
        Kind::GroupMembership,
        Kind::Credential(Scheme::KeyAuth),
        Kind::Credential(Scheme::BasicAuth),
        Kind::Credential(Scheme::Jwt),
        Kind::Credential(Scheme::HmacAuth),
        Kind::Credential(Scheme::OAuth2),
        Kind::Credential(Scheme::Acl),
        Kind::Upstream,
        Kind::Target,
        Kind::Service,
        Kind::Route,
        Kind::Plugin,
    ];

    /// As in the Admin API's paths and in declarative files: `services`.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::Vault => "vaults",
            Kind::KeySet => "key_sets",
            Kind::Key => "keys",
            Kind::CaCertificate => "ca_certificates",
            Kind::Certificate => "certificates",
            Kind::Sni => "snis",
            Kind::Consumer => "consumers",
            Kind::ConsumerGroup => "consumer_groups",
            Kind::GroupMembership => "consumer_group_consumers",
            Kind::Credential(scheme) => scheme.plural(),
            Kind::Upstream => "upstreams",
            Kind::Target => "targets",
            Kind::Service => "services",
            Kind::Route => "routes",
            Kind::Plugin => "plugins",
        }
    }

    /// As fields that refer to one are called: `service`.
    pub const fn singular(self) -> &'static str {
        match self {
            Kind::Vault => "vault",
            // A key calls it so.
            Kind::KeySet => "set",
            Kind::Key => "key",
            Kind::CaCertificate => "ca_certificate",
            Kind::Certificate => "certificate",
            Kind::Sni => "sni",
            Kind::Consumer => "consumer",
            Kind::ConsumerGroup => "consumer_group",
            Kind::GroupMembership => "consumer_group_consumer",
            Kind::Credential(scheme) => scheme.singular(),
            Kind::Upstream => "upstream",
            Kind::Target => "target",
            Kind::Service => "service",
            Kind::Route => "route",
            Kind::Plugin => "plugin",
        }
    }

    /// The field with the unique name by which paths and files may call a
    /// record of this kind, besides its id.
    pub const fn key(self) -> Option<&'static str> {
        match self {
            Kind::Service
            | Kind::Route
            | Kind::Upstream
            | Kind::Sni
            | Kind::KeySet
            | Kind::Key
            | Kind::ConsumerGroup => Some("name"),
            Kind::Vault => Some("prefix"),
            Kind::Consumer => Some("username"),
            Kind::Credential(scheme) => scheme.key(),
            Kind::Plugin => Some("instance_name"),
            // A target is unique within its upstream only, a member within its group.
            Kind::CaCertificate | Kind::Certificate | Kind::Target | Kind::GroupMembership => None,
        }
    }

    /// The fields by which records of this kind refer to others.
    pub const fn links(self) -> &'static [Link] {
        match self {
            Kind::Vault
            | Kind::KeySet
            | Kind::CaCertificate
            | Kind::Certificate
            | Kind::Consumer
            | Kind::ConsumerGroup => &[],
            Kind::GroupMembership => {
                &const {
                    [
                        link("consumer", Kind::Consumer, Cascade),
                        link("consumer_group", Kind::ConsumerGroup, Cascade),
                    ]
                }
            }
            Kind::Key => &const { [link("set", Kind::KeySet, Cascade)] },
            Kind::Sni => &const { [link("certificate", Kind::Certificate, Cascade)] },
            Kind::Credential(_) => &const { [link("consumer", Kind::Consumer, Cascade)] },
            Kind::Upstream => &const { [link("client_certificate", Kind::Certificate, Restrict)] },
            Kind::Target => &const { [link("upstream", Kind::Upstream, Cascade)] },
            Kind::Service => {
                &const {
                    [
                        link("client_certificate", Kind::Certificate, Restrict),
                        link("ca_certificates", Kind::CaCertificate, Restrict),
                    ]
                }
            }
            Kind::Route => &const { [link("service", Kind::Service, Restrict)] },
            Kind::Plugin => {
                &const {
                    [
                        link("service", Kind::Service, Cascade),
                        link("route", Kind::Route, Cascade),
                        link("consumer", Kind::Consumer, Cascade),
                        link("consumer_group", Kind::ConsumerGroup, Cascade),
                        link(plugin::CERTIFICATE, Kind::Certificate, Restrict),
                        link(plugin::AUTHORITIES, Kind::CaCertificate, Restrict),
                    ]
                }
            }
        }
    }

    /// The kind with this plural.
    pub fn of_plural(plural: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.plural() == plural)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_after_those_that_it_refers_to() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_plural(kind.plural()), Some(kind));
            for link in kind.links() {
                assert!(link.to < kind, "{kind:?} refers to {:?}", link.to);
            }
        }
    }
}
