//! Routes at the positions that a router answers.

use std::sync::Arc;

use uuid::Uuid;

use super::LiveRoute;
use crate::copy_on_write_map::CopyOnWriteMap;

/// Routes that a change copies together.
const CHUNK: usize = 64;

type Chunk = [Option<Arc<LiveRoute>>; CHUNK];

/// Live routes, each at a position that it keeps as long as it is there. A
/// clone shares everything; a change copies what is near to it.
#[derive(Clone, Default)]
pub struct Slots {
    chunks: Vec<Arc<Chunk>>,
    /// Positions that nobody has, besides those behind the last chunk.
    free: Vec<u32>,
    positions: CopyOnWriteMap<u32>,
    len: usize,
}

impl Slots {
    /// The route at a position.
    #[inline]
    pub fn get(&self, position: usize) -> Option<&Arc<LiveRoute>> {
        self.chunks.get(position / CHUNK)?[position % CHUNK].as_ref()
    }

    /// A route and its position.
    pub fn by_id(&self, id: Uuid) -> Option<(usize, &Arc<LiveRoute>)> {
        let position = *self.positions.get(id)? as usize;
        Some((position, self.get(position)?))
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All routes and their positions, by ascending position.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<LiveRoute>)> {
        let all = self.chunks.iter().flat_map(|chunk| chunk.iter());
        let all = all.enumerate();
        all.filter_map(|(position, route)| Some((position, route.as_ref()?)))
    }

    /// All routes, by ascending id.
    pub fn by_ascending_id(&self) -> Vec<&Arc<LiveRoute>> {
        let positions = self.positions.iter();
        let routes = positions.filter_map(|(_, position)| self.get(*position as usize));
        routes.collect()
    }

    /// Puts a route where the one of its id was, or else anywhere; its position.
    pub(super) fn put(&mut self, route: Arc<LiveRoute>) -> usize {
        let id = route.id();
        let known = self.positions.get(id).map(|position| *position as usize);
        let position = known.unwrap_or_else(|| {
            let position = self.take_free();
            self.positions
                .put(id, super::super::router::index(position));
            self.len += 1;
            position
        });
        self.set(position, Some(route));
        position
    }

    /// Takes a route out; the position that it had.
    pub(super) fn remove(&mut self, id: Uuid) -> Option<usize> {
        let position = self.positions.remove(id)?;
        self.set(position as usize, None);
        self.free.push(position);
        self.len -= 1;
        Some(position as usize)
    }

    /// The routes that `next` does not have; both are successive states.
    pub(super) fn gone_in(&self, next: &Self) -> Vec<Arc<LiveRoute>> {
        let mut gone = Vec::new();
        for (at, chunk) in self.chunks.iter().enumerate() {
            let other = next.chunks.get(at);
            if other.is_some_and(|other| Arc::ptr_eq(chunk, other)) {
                continue;
            }
            for (place, route) in chunk.iter().enumerate() {
                let Some(route) = route else { continue };
                let kept = other.and_then(|other| other[place].as_ref());
                if !kept.is_some_and(|kept| Arc::ptr_eq(kept, route)) {
                    gone.push(Arc::clone(route));
                }
            }
        }
        gone
    }

    fn take_free(&mut self) -> usize {
        if let Some(position) = self.free.pop() {
            return position as usize;
        }
        let first = self.chunks.len() * CHUNK;
        self.chunks.push(Arc::new(std::array::from_fn(|_| None)));
        let others = (first + 1..first + CHUNK).rev();
        self.free.extend(others.map(super::super::router::index));
        first
    }

    fn set(&mut self, position: usize, route: Option<Arc<LiveRoute>>) {
        let chunk = Arc::make_mut(&mut self.chunks[position / CHUNK]);
        chunk[position % CHUNK] = route;
    }
}
