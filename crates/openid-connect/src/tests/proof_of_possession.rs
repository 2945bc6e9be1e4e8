//! Proofs of possession: each counts once, wherever and whenever it comes.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::server_side_sessions::Node;
use super::*;
use doorward_core::jose::dpop;
use doorward_net::shared::testing::Server;

/// A proof for `GET http://orders.test/orders` with this token.
fn proof(key: &TestKey, token: &str, id: &str) -> String {
    let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes()));
    let claims = json!({"jti": id, "htm": "GET", "htu": "http://orders.test/orders",
        "iat": NOW, "ath": hash});
    let header = json!({"typ": "dpop+jwt", "alg": key.alg(), "jwk": key.jwk()});
    key.sign(&header.to_string(), &claims.to_string())
}

/// A token that is bound to the key.
fn bound_token(world: &World, key: &TestKey) -> String {
    let thumbprint = dpop::read(&proof(key, "", "x"))
        .expect("a proof")
        .thumbprint;
    world.token(json!({"cnf": {"jkt": thumbprint}}))
}

fn request(token: &str, proof: &str) -> String {
    get_with(&format!("Authorization: DPoP {token}\r\nDPoP: {proof}"))
}

fn strict() -> Value {
    json!({"auth_methods": ["bearer"], "proof_of_possession_dpop": "strict"})
}

#[tokio::test]
async fn a_proof_counts_once_at_all_nodes_of_a_store_and_after_a_restart() {
    let mut node = Node::new(strict()).await;
    let key = TestKey::es256("k");
    let token = bound_token(&node.world, &key);
    let ask = request(&token, &proof(&key, &token, "1"));
    assert_eq!(node.world.ask(&ask).await.code(), (200, "pass"));
    let repeated = (401, "proof_repeated");
    assert_eq!(node.world.ask(&ask).await.code(), repeated);
    let other = node.other().await;
    assert_eq!(other.ask(&ask).await.code(), repeated, "another node");
    node.restart().await;
    assert_eq!(node.world.ask(&ask).await.code(), repeated, "a restart");
    let new = request(&token, &proof(&key, &token, "2"));
    assert_eq!(other.ask(&new).await.code(), (200, "pass"));
    assert_eq!(node.world.ask(&new).await.code(), repeated);
}

#[tokio::test]
async fn of_a_proof_that_comes_to_two_nodes_at_once_one_counts() {
    let node = Node::new(strict()).await;
    let other = node.other().await;
    let key = TestKey::es256("k");
    let token = bound_token(&node.world, &key);
    for n in 0..20 {
        let ask = request(&token, &proof(&key, &token, &n.to_string()));
        let (one, two) = tokio::join!(node.world.ask(&ask), other.ask(&ask));
        let mut codes = [one.code(), two.code()];
        codes.sort_unstable();
        assert_eq!(codes, [(200, "pass"), (401, "proof_repeated")]);
    }
}

#[tokio::test]
async fn a_proof_of_nobody_whose_token_passes_writes_nothing() {
    let node = Node::new(strict()).await;
    let (key, thief) = (TestKey::es256("k"), TestKey::es256("t"));
    let token = bound_token(&node.world, &key);
    let forged = TestKey::es256("key-1").token(&claims(json!({})));
    for (token, key) in [(&token, &thief), (&forged, &key)] {
        let ask = request(token, &proof(key, token, "1"));
        assert_eq!(node.world.ask(&ask).await.code().0, 401);
    }
    // It would be known as used.
    let ask = request(&token, &proof(&key, &token, "1"));
    assert_eq!(node.world.ask(&ask).await.code(), (200, "pass"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_counts_once_at_all_nodes_of_a_redis_and_none_while_it_is_silent() {
    let server = Server::start();
    let mut node = Node::new(strict()).await;
    let mut other = Node::new(strict()).await;
    for node in [&mut node, &mut other] {
        let metrics = Metrics::default();
        let redis =
            doorward_net::shared::Redis::open(&server.config("1 s"), &metrics).expect("a Redis");
        doorward_net::shared::testing::wait_until(|| redis.is_up());
        node.world.parts.redis = Some(redis);
        node.restart().await;
    }
    other.world.issuer.publish(&[&node.world.key]);
    let key = TestKey::es256("k");
    let token = bound_token(&node.world, &key);
    let ask = request(&token, &proof(&key, &token, "1"));
    assert_eq!(node.world.ask(&ask).await.code(), (200, "pass"));
    // Its store is another one.
    let repeated = (401, "proof_repeated");
    assert_eq!(other.world.ask(&ask).await.code(), repeated);
    node.restart().await;
    assert_eq!(node.world.ask(&ask).await.code(), repeated);
    server.freeze(true);
    let new = request(&token, &proof(&key, &token, "2"));
    let outcome = node.world.ask(&new).await;
    assert_eq!(outcome.code(), (500, "proofs_unavailable"));
    server.freeze(false);
}
