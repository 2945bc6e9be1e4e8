//! Consistent hashing: which endpoint owns which slot.
//!
//! Every endpoint draws a number for every slot and the best draw, by weight,
//! owns it (weighted rendezvous hashing). Shares are proportional to weights,
//! and a change moves only what it must: a new endpoint takes its share
//! evenly from all, a removed one leaves its slots to all. Memory is two bytes
//! a slot. A table that changed a little is made from the one before.

use super::random::{mix, scale};

/// Who competes for slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contender {
    /// Tells it from all others.
    pub(super) key: u64,
    /// Its weight; 0: owns nothing.
    pub(super) share: f64,
}

/// The owner of every slot, as index of the endpoint set.
#[derive(Debug)]
pub(super) struct Ring {
    owners: Box<[u16]>,
    contenders: Box<[Contender]>,
}

impl Ring {
    /// The slots among the first 65,536 of `contenders`.
    pub(super) fn new(
        contenders: Box<[Contender]>,
        slots: u32,
        previous: Option<&Ring>,
    ) -> Option<Self> {
        if !contenders.iter().any(|c| c.share > 0.0) {
            return None;
        }
        let slots = slots.clamp(1, 1 << 16);
        let moved = previous
            .filter(|ring| ring.owners.len() == slots as usize)
            .map(|ring| Moved::between(&ring.contenders, &contenders));
        let field = Field::of(&contenders, |_| true);
        let owner = |slot: u32| {
            let kept = moved.as_ref().zip(previous).and_then(|(moved, ring)| {
                let old = moved.kept[usize::from(ring.owners[slot as usize])]?;
                Some(match moved.fresh.best(u64::from(slot), &contenders) {
                    Some(rival) => better(u64::from(slot), old, rival, &contenders),
                    None => old,
                })
            });
            kept.or_else(|| field.best(u64::from(slot), &contenders))
        };
        let owners = (0..slots).map(|slot| owner(slot).unwrap_or(0)).collect();
        Some(Self { owners, contenders })
    }

    /// The owner of the slot that `hash` falls into.
    pub(super) fn owner(&self, hash: u64) -> usize {
        let slot = scale(hash, self.owners.len() as u64);
        usize::from(self.owners[slot as usize])
    }
}

/// How the contenders of one ring became those of the next.
struct Moved {
    /// New index of each old contender that is unchanged.
    kept: Box<[Option<u16>]>,
    /// Those that are new or have another weight.
    fresh: Field,
}

impl Moved {
    fn between(old: &[Contender], new: &[Contender]) -> Self {
        let place: std::collections::HashMap<(u64, u64), u16> = new
            .iter()
            .zip(0..)
            .map(|(c, index)| ((c.key, c.share.to_bits()), index))
            .collect();
        let kept: Box<[Option<u16>]> = old
            .iter()
            .map(|c| place.get(&(c.key, c.share.to_bits())).copied())
            .collect();
        let mut known = vec![false; new.len()];
        for &index in kept.iter().flatten() {
            known[usize::from(index)] = true;
        }
        Self {
            kept,
            fresh: Field::of(new, |index| !known[index]),
        }
    }
}

/// Contenders by weight: within one weight the greater draw is the better, and
/// nothing has to be computed.
struct Field(Vec<(f64, Vec<u16>)>);

impl Field {
    fn of(contenders: &[Contender], takes_part: impl Fn(usize) -> bool) -> Self {
        let mut classes: Vec<(f64, Vec<u16>)> = Vec::new();
        for (c, index) in contenders.iter().zip(0_u16..=u16::MAX) {
            if c.share <= 0.0 || !takes_part(usize::from(index)) {
                continue;
            }
            match classes.iter_mut().find(|(share, _)| *share == c.share) {
                Some((_, class)) => class.push(index),
                None => classes.push((c.share, vec![index])),
            }
        }
        Self(classes)
    }

    fn best(&self, slot: u64, contenders: &[Contender]) -> Option<u16> {
        let champion = |class: &Vec<u16>| {
            let mut best = None;
            for &index in class {
                let draw = draw(slot, contenders[usize::from(index)].key);
                if best.is_none_or(|(other, _)| draw > other) {
                    best = Some((draw, index));
                }
            }
            best.map(|(_, index)| index)
        };
        self.0
            .iter()
            .filter_map(|(_, class)| champion(class))
            .reduce(|a, b| better(slot, a, b, contenders))
    }
}

fn draw(slot: u64, key: u64) -> u64 {
    mix(key ^ slot.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The better one of two for `slot`: the greater `ln(u) / weight`.
fn better(slot: u64, a: u16, b: u16, contenders: &[Contender]) -> u16 {
    let score = |index: u16| {
        let c = contenders[usize::from(index)];
        let u = ((draw(slot, c.key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        u.ln() / c.share
    };
    if score(b) > score(a) { b } else { a }
}
