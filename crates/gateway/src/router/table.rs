//! The hosts of all routes, found by hash.

use super::hosts::{Form, HostPattern, Name};
use super::index::{Hashed, Index, map_heap};
use super::leaf::Leaf;

/// Longest host that is looked for: a request's is never longer.
const LONGEST: usize = 255;

/// Hosts and their leaves.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// By hash of form, name and port; of two with one hash the second stands
    /// at the next number.
    slots: Hashed<Slot>,
    names: String,
    /// Bit n: some wildcard of this form has n dots (or 127 and more).
    suffix_dots: u128,
    prefix_dots: u128,
    /// Whether some host names a port.
    ported: bool,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    start: u32,
    leaf: Leaf,
    port: u16,
    len: u8,
    form: Form,
}

fn bit(dots: usize) -> u128 {
    1 << dots.min(127)
}

impl Hosts {
    pub(super) fn with_capacity(hosts: usize) -> Self {
        let mut slots = Hashed::default();
        slots.reserve(hosts);
        Self {
            slots,
            ..Self::default()
        }
    }

    /// Adds a host that was not added before.
    pub(super) fn put(&mut self, index: &Index, host: &HostPattern, leaf: Leaf) {
        let Some(len) = u8::try_from(host.text.len()).ok() else {
            return; // longer than LONGEST: no request can ask for it
        };
        match host.form {
            Form::Exact => {}
            Form::Suffix => self.suffix_dots |= bit(host.dots()),
            Form::Prefix => self.prefix_dots |= bit(host.dots()),
        }
        self.ported |= host.port != 0;
        let slot = Slot {
            start: super::entry::index(self.names.len()),
            leaf,
            port: host.port,
            len,
            form: host.form,
        };
        self.names.push_str(&host.text);
        let mut hash = hash(index, host.form, &host.text, host.port);
        while self.slots.contains_key(&hash) {
            hash = hash.wrapping_add(1);
        }
        self.slots.insert(hash, slot);
    }

    /// Calls `visit` with the leaf of every host that means `name` at `port`.
    pub(super) fn search(
        &self,
        index: &Index,
        name: Name<'_>,
        port: u16,
        visit: &mut dyn FnMut(Leaf),
    ) {
        if self.slots.is_empty() || name.text().len() > LONGEST {
            return;
        }
        let mut look = |form, text: &str| {
            if let Some(leaf) = self.find(index, form, text, 0) {
                visit(leaf);
            }
            if self.ported
                && port != 0
                && let Some(leaf) = self.find(index, form, text, port)
            {
                visit(leaf);
            }
        };
        look(Form::Exact, name.text());
        if self.suffix_dots | self.prefix_dots == 0 {
            return;
        }
        for cut in name.cuts() {
            if self.suffix_dots & bit(cut.suffix_dots) != 0 {
                look(Form::Suffix, cut.suffix);
            }
            if self.prefix_dots & bit(cut.prefix_dots) != 0 {
                look(Form::Prefix, cut.prefix);
            }
        }
    }

    fn find(&self, index: &Index, form: Form, text: &str, port: u16) -> Option<Leaf> {
        let mut hash = hash(index, form, text, port);
        loop {
            let slot = self.slots.get(&hash)?;
            let start = slot.start as usize;
            let name = &self.names[start..start + usize::from(slot.len)];
            if slot.form == form && slot.port == port && name == text {
                return Some(slot.leaf);
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        map_heap(&self.slots) + self.names.capacity()
    }
}

fn hash(index: &Index, form: Form, text: &str, port: u16) -> u64 {
    index.state.hash_one((form, port, text))
}
