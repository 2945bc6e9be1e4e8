//! Of each kind: what is unique about its records and what they refer to.

use uuid::Uuid;

use super::{Column, Entities, Entity, Kind, Table, Unique};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::key::{Key, KeySet};
use doorward_core::model::plugin::{AUTHORITIES, CERTIFICATE, Plugin};
use doorward_core::model::route::{Reference, Route};
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::model::vault::Vault;

/// Where a reference that is set points to.
fn link(field: &'static str, to: Option<Reference>) -> Option<(&'static str, Uuid)> {
    to.map(|to| (field, to.id))
}

fn id_of(reference: Option<Reference>) -> Column<'static> {
    Column::Id(reference.map(|to| to.id))
}

/// What is the same for all kinds: the key columns and the table.
macro_rules! basics {
    ($kind:ident, $table:ident) => {
        const KIND: Kind = Kind::$kind;

        fn id(&self) -> Uuid {
            self.id
        }

        fn tags(&self) -> &[String] {
            self.tags.as_deref().unwrap_or_default()
        }

        fn table(entities: &Entities) -> &Table<Self> {
            &entities.$table
        }

        fn table_mut(entities: &mut Entities) -> &mut Table<Self> {
            &mut entities.$table
        }
    };
}

impl Entity for Service {
    basics!(Service, services);

    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("name", self.name.as_deref()).collect()
    }

    fn texts(&self) -> Vec<(&'static str, &str)> {
        vec![("host", &self.host)]
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        let authorities = self.ca_certificates.iter().flatten();
        link("client_certificate", self.client_certificate)
            .into_iter()
            .chain(authorities.map(|id| ("ca_certificates", *id)))
            .collect()
    }
}

impl Entity for Route {
    basics!(Route, routes);

    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("name", self.name.as_deref()).collect()
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        link("service", self.service).into_iter().collect()
    }
}

impl Entity for Plugin {
    basics!(Plugin, plugins);

    fn key(&self) -> Option<&str> {
        self.instance_name.as_deref()
    }

    /// One plugin of a name at each place.
    fn unique(&self) -> Vec<Unique<'_>> {
        // Told only if there is one: without groups all is as in the edition without them.
        let group = self.consumer_group;
        let group = group.map(|group| ("consumer_group", Column::Id(Some(group.id))));
        let place = [("consumer", id_of(self.consumer))]
            .into_iter()
            .chain(group)
            .chain([
                ("name", Column::Text(self.name.as_str().into())),
                ("route", id_of(self.route)),
                ("service", id_of(self.service)),
            ]);
        let place = Unique::of(place.collect());
        Unique::text("instance_name", self.instance_name.as_deref())
            .chain([place])
            .collect()
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        [
            link("service", self.service),
            link("route", self.route),
            link("consumer", self.consumer),
            link("consumer_group", self.consumer_group),
            self.certificate().map(|id| (CERTIFICATE, id)),
        ]
        .into_iter()
        .flatten()
        .chain(self.authorities().map(|id| (AUTHORITIES, id)))
        .collect()
    }
}

impl Entity for Consumer {
    basics!(Consumer, consumers);

    fn key(&self) -> Option<&str> {
        self.username.as_deref()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("username", self.username.as_deref())
            .chain(Unique::text("custom_id", self.custom_id.as_deref()))
            .collect()
    }
}

impl Entity for ConsumerGroup {
    basics!(ConsumerGroup, consumer_groups);

    fn key(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("name", Some(&self.name)).collect()
    }
}

impl Entity for GroupMembership {
    basics!(GroupMembership, group_memberships);

    fn unique(&self) -> Vec<Unique<'_>> {
        vec![group_membership(self.consumer.id, self.consumer_group.id)]
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        vec![
            ("consumer", self.consumer.id),
            ("consumer_group", self.consumer_group.id),
        ]
    }
}

/// What is unique about the membership of a consumer in a group.
pub fn group_membership(consumer: Uuid, group: Uuid) -> Unique<'static> {
    Unique::of(vec![
        ("consumer", Column::Id(Some(consumer))),
        ("consumer_group", Column::Id(Some(group))),
    ])
}

impl Entity for Upstream {
    basics!(Upstream, upstreams);

    fn key(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("name", Some(&self.name)).collect()
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        link("client_certificate", self.client_certificate)
            .into_iter()
            .collect()
    }
}

impl Entity for Target {
    basics!(Target, targets);

    fn unique(&self) -> Vec<Unique<'_>> {
        vec![target_place(&self.target, self.upstream.id)]
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        vec![("upstream", self.upstream.id)]
    }
}

/// What is unique about the target `host:port` of an upstream.
pub fn target_place(target: &str, upstream: Uuid) -> Unique<'_> {
    Unique::of(vec![
        ("target", Column::Text(target.into())),
        ("upstream", Column::Id(Some(upstream))),
    ])
}

impl Entity for KeySet {
    basics!(KeySet, key_sets);

    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("name", self.name.as_deref()).collect()
    }
}

impl Entity for Key {
    basics!(Key, keys);

    fn key(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        let in_set = Unique::of(vec![
            ("kid", Column::Text(self.kid.as_str().into())),
            ("set", id_of(self.set)),
        ]);
        Unique::text("name", self.name.as_deref())
            .chain([in_set])
            .collect()
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        link("set", self.set).into_iter().collect()
    }
}

impl Entity for Vault {
    basics!(Vault, vaults);

    fn key(&self) -> Option<&str> {
        Some(&self.prefix)
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("prefix", Some(&self.prefix)).collect()
    }
}

impl Entity for Certificate {
    basics!(Certificate, certificates);
}

impl Entity for Sni {
    basics!(Sni, snis);

    fn key(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// Server names are the same in any case.
    fn named(name: &str) -> Option<Unique<'_>> {
        let folded = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            name.to_ascii_lowercase().into()
        } else {
            name.into()
        };
        Some(Unique::of(vec![("name", Column::Text(folded))]))
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        Self::named(&self.name).into_iter().collect()
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        vec![("certificate", self.certificate.id)]
    }
}

impl Entity for CaCertificate {
    basics!(CaCertificate, ca_certificates);

    fn unique(&self) -> Vec<Unique<'_>> {
        Unique::text("cert_digest", Some(&self.cert_digest)).collect()
    }
}
