//! A radix tree over path prefixes: a look-up walks the request's path once,
//! whatever the number of prefixes.

/// Most bytes of a prefix that one node holds; longer ones take several.
const LABEL: usize = 12;

/// Prefixes and the values at them, built once.
///
/// Nodes lie in one vector; the children of a node are neighbours, sorted by
/// their first byte, so a step is a search among a few bytes. A node holds its
/// label and its only value: with many prefixes a step costs what it costs to
/// fetch two lines of memory.
#[derive(Debug, Default)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// First bytes of the labels of all nodes, parallel to `nodes`.
    heads: Vec<u8>,
    values: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    label: [u8; LABEL],
    label_len: u8,
    children: u16,
    first_child: u32,
    /// The value itself if there is one, else where the values begin.
    value: u32,
    values: u32,
}

impl Trie {
    /// Builds from `(prefix, value)` pairs. Values of one prefix keep their
    /// given order.
    pub(super) fn build(mut pairs: Vec<(&[u8], u32)>) -> Self {
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        let mut trie = Self::default();
        trie.nodes.push(Node::default());
        trie.heads.push(0);
        trie.fill(0, &pairs, 0);
        trie
    }

    /// Lays out the node at `index`, whose prefix is the first `depth` bytes
    /// of every pair, and its children.
    fn fill(&mut self, index: usize, pairs: &[(&[u8], u32)], depth: usize) {
        let here = pairs.iter().take_while(|(p, _)| p.len() == depth).count();
        let (own, rest) = pairs.split_at(here);
        self.nodes[index].values = len32(own);
        self.nodes[index].value = match own {
            [(_, value)] => *value,
            _ => len32(&self.values),
        };
        if own.len() > 1 {
            self.values.extend(own.iter().map(|(_, value)| *value));
        }
        let groups: Vec<&[(&[u8], u32)]> = rest.chunk_by(|a, b| a.0[depth] == b.0[depth]).collect();
        let first = self.nodes.len();
        self.nodes[index].first_child = len32(&self.nodes);
        self.nodes[index].children = u16::try_from(groups.len()).expect("at most 256 bytes");
        for group in &groups {
            self.heads.push(group[0].0[depth]);
            self.nodes.push(Node::default());
        }
        for (offset, group) in groups.into_iter().enumerate() {
            let shared = common_prefix(group[0].0, group[group.len() - 1].0);
            let end = shared.min(depth + LABEL);
            let label = &group[0].0[depth..end];
            let node = &mut self.nodes[first + offset];
            node.label[..label.len()].copy_from_slice(label);
            node.label_len = u8::try_from(label.len()).expect("at most LABEL bytes");
            self.fill(first + offset, group, end);
        }
    }

    /// Calls `visit` with the values of every prefix of `path`, shortest first.
    pub(super) fn walk(&self, path: &[u8], mut visit: impl FnMut(&[u32])) {
        let Some(mut node) = self.nodes.first() else {
            return;
        };
        let mut rest = path;
        loop {
            match node.values {
                0 => {}
                1 => visit(std::slice::from_ref(&node.value)),
                many => {
                    let start = node.value as usize;
                    visit(&self.values[start..start + many as usize]);
                }
            }
            let Some(&head) = rest.first() else { return };
            let first = node.first_child as usize;
            let heads = &self.heads[first..first + usize::from(node.children)];
            let Some(at) = find(heads, head) else { return };
            node = &self.nodes[first + at];
            let label = &node.label[..usize::from(node.label_len)];
            let Some(after) = rest.strip_prefix(label) else {
                return;
            };
            rest = after;
        }
    }
}

fn find(heads: &[u8], head: u8) -> Option<usize> {
    if heads.len() <= 16 {
        return heads.iter().position(|&h| h == head);
    }
    heads.binary_search(&head).ok()
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn len32<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("fewer than 2^32 routes and path bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(trie: &Trie, path: &str) -> Vec<u32> {
        let mut all = Vec::new();
        trie.walk(path.as_bytes(), |values| all.extend_from_slice(values));
        all
    }

    #[test]
    fn every_prefix_is_visited_from_short_to_long() {
        let trie = Trie::build(vec![
            (b"/foo/bar", 3),
            (b"", 0),
            (b"/foo", 2),
            (b"/", 1),
            (b"/fox", 4),
            (b"/foo", 5),
        ]);
        assert_eq!(found(&trie, "/foo/bar/baz"), [0, 1, 2, 5, 3]);
        assert_eq!(found(&trie, "/foobar"), [0, 1, 2, 5]);
        assert_eq!(found(&trie, "/fox"), [0, 1, 4]);
        assert_eq!(found(&trie, "/f"), [0, 1]);
        assert_eq!(found(&trie, ""), [0]);
    }

    #[test]
    fn long_prefixes_are_found_whole() {
        let long = "/a-prefix-that-takes-several-nodes/and-more";
        let trie = Trie::build(vec![(long.as_bytes(), 1), (b"/a-prefix-that-takes", 2)]);
        assert_eq!(found(&trie, long), [2, 1]);
        assert_eq!(found(&trie, &long[..long.len() - 1]), [2]);
        assert_eq!(found(&trie, &format!("{long}/x")), [2, 1]);
        assert!(found(&trie, "/a-prefix-that-take").is_empty());
    }

    #[test]
    fn an_empty_tree_finds_nothing() {
        assert!(found(&Trie::default(), "/a").is_empty());
        assert!(found(&Trie::build(Vec::new()), "/a").is_empty());
    }
}
