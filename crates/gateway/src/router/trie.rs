//! A radix tree over texts: a look-up walks the request's path once, whatever
//! the number of texts.

use smallvec::SmallVec;

use super::leaf::Leaf;

/// Most bytes of a text that one node holds; longer ones take several.
const LABEL: usize = 12;

/// Texts and the leaves at them, built once.
///
/// Nodes lie in one vector; the children of a node are neighbours, sorted by
/// their first byte, so a step is a search among a few bytes. A node holds its
/// label and its leaf: with many texts a step costs what it costs to fetch two
/// lines of memory.
#[derive(Debug, Default)]
pub(super) struct Trie {
    nodes: Box<[Node]>,
    /// First bytes of the labels of all nodes, parallel to `nodes`.
    heads: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    label: [u8; LABEL],
    label_len: u8,
    children: u16,
    first_child: u32,
    leaf: Leaf,
}

/// The leaves on one leaves through the tree, from short to long.
pub(super) type Leaves = SmallVec<[Leaf; 16]>;

/// A tree that grows.
struct Builder<'a> {
    nodes: Vec<Node>,
    heads: Vec<u8>,
    leaf: &'a mut dyn FnMut(&[u32]) -> Leaf,
}

impl Trie {
    /// Builds from `(text, rank)` pairs; `leaf` makes a leaf of the ranks of
    /// one text, in their given order.
    pub(super) fn build(
        mut pairs: Vec<(&[u8], u32)>,
        leaf: &mut dyn FnMut(&[u32]) -> Leaf,
    ) -> Self {
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        let mut builder = Builder {
            nodes: vec![Node::default()],
            heads: vec![0],
            leaf,
        };
        // Not by recursion: a path may be as long as a request.
        let mut open = vec![(0, &pairs[..], 0)];
        while let Some((index, pairs, depth)) = open.pop() {
            builder.fill(index, pairs, depth, &mut open);
        }
        Self {
            nodes: builder.nodes.into(),
            heads: builder.heads.into(),
        }
    }

    /// Appends the leaves of every text that `path` begins with.
    pub(super) fn walk(&self, path: &[u8], leaves: &mut Leaves) {
        let Some(mut node) = self.nodes.first() else {
            return;
        };
        let mut rest = path;
        loop {
            if !node.leaf.is_empty() {
                leaves.push(node.leaf);
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

    /// Bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        std::mem::size_of_val(&*self.nodes) + self.heads.len()
    }
}

impl Builder<'_> {
    /// Lays out the node at `index`, whose text is the first `depth` bytes of
    /// every pair; its children are left in `open`.
    fn fill<'p>(&mut self, index: usize, pairs: Pairs<'p>, depth: usize, open: &mut Open<'p>) {
        let here = pairs.iter().take_while(|(p, _)| p.len() == depth).count();
        let (own, rest) = pairs.split_at(here);
        if !own.is_empty() {
            let ranks: SmallVec<[u32; 8]> = own.iter().map(|(_, rank)| *rank).collect();
            self.nodes[index].leaf = (self.leaf)(&ranks);
        }
        let first = self.nodes.len();
        for group in rest.chunk_by(|a, b| a.0[depth] == b.0[depth]) {
            let (one, other) = (&group[0].0[depth..], &group[group.len() - 1].0[depth..]);
            let end = depth + common_prefix(one, other);
            let label = &group[0].0[depth..end];
            let mut node = Node::default();
            node.label[..label.len()].copy_from_slice(label);
            node.label_len = u8::try_from(label.len()).expect("at most LABEL bytes");
            open.push((self.nodes.len(), group, end));
            self.heads.push(label[0]);
            self.nodes.push(node);
        }
        let children = self.nodes.len() - first;
        self.nodes[index].first_child = super::entry::index(first);
        self.nodes[index].children = u16::try_from(children).expect("at most 256 bytes");
    }
}

/// Texts in order, each with a rank.
type Pairs<'p> = &'p [(&'p [u8], u32)];

/// Nodes to be laid out: which, with what, from which depth on.
type Open<'p> = Vec<(usize, Pairs<'p>, usize)>;

fn find(heads: &[u8], head: u8) -> Option<usize> {
    if heads.len() <= 16 {
        return heads.iter().position(|&h| h == head);
    }
    heads.binary_search(&head).ok()
}

/// How many bytes two texts share, as far as a node can hold them.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let pairs = a.iter().zip(b).take(LABEL);
    pairs.take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree whose leaves are lists, and these lists.
    struct Lists(Trie, Vec<u32>);

    fn build(pairs: Vec<(&[u8], u32)>) -> Lists {
        let mut lists = Vec::new();
        let trie = Trie::build(pairs, &mut |ranks| Leaf::list(ranks, &mut lists));
        Lists(trie, lists)
    }

    fn found(Lists(trie, lists): &Lists, path: &str) -> Vec<u32> {
        let mut leaves = Leaves::new();
        trie.walk(path.as_bytes(), &mut leaves);
        let ranks = leaves.iter().flat_map(|leaf| leaf.ranks(lists).to_vec());
        ranks.collect()
    }

    #[test]
    fn every_prefix_is_visited_from_short_to_long() {
        let trie = build(vec![
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
        let trie = build(vec![(long.as_bytes(), 1), (b"/a-prefix-that-takes", 2)]);
        assert_eq!(found(&trie, long), [2, 1]);
        assert_eq!(found(&trie, &long[..long.len() - 1]), [2]);
        assert_eq!(found(&trie, &format!("{long}/x")), [2, 1]);
        assert!(found(&trie, "/a-prefix-that-take").is_empty());
    }

    #[test]
    fn an_empty_tree_finds_nothing() {
        assert!(found(&Lists(Trie::default(), Vec::new()), "/a").is_empty());
        assert!(found(&build(Vec::new()), "/a").is_empty());
    }
}
