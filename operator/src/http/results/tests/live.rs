//! The seconds of a live request: who gets them, and which pod and container names they have.

use super::*;

async fn ask(scene: &ResultsScene, name: &str, key: &str, after: i64) -> (u16, Value) {
    let question = json!({"accessKey": key, "after": after}).to_string();
    let path = format!("/r/shop/{name}/live");
    let (status, _, answer) = scene.call("POST", &path, &question).await;
    (status, serde_json::from_str(&answer).unwrap())
}

#[tokio::test]
async fn the_access_key_gets_each_second_once() {
    let scene = scene().await;
    scene
        .live
        .bring("elsewhere/other.pb.gz", vec![9].into(), at(0));
    scene
        .live
        .bring(&scene.object_key, vec![1, 2].into(), at(0));
    let access_key = scene.keyring.access_key(UID);
    let (status, answer) = ask(&scene, "running", &access_key, 0).await;
    assert_eq!(status, 200);
    let golden: Value =
        serde_json::from_str(include_str!("../../../../../contract/live.json")).unwrap();
    let fields = |value: &Value| -> Vec<String> {
        let second = value["seconds"][0].as_object().unwrap();
        second.keys().cloned().collect()
    };
    assert_eq!(fields(&answer), fields(&golden["answer"]));
    assert_eq!(answer["seconds"].as_array().unwrap().len(), 1);
    let second = &answer["seconds"][0];
    assert_eq!(
        (&second["pod"], &second["container"]),
        (&json!("web"), &json!("fpm"))
    );
    assert_eq!(second["profile"], "AQI=");
    let after = second["number"].as_i64().unwrap();
    let (_, answer) = ask(&scene, "running", &access_key, after).await;
    assert_eq!(answer, json!({"seconds": []}));
}

#[tokio::test]
async fn foreign_keys_get_nothing_and_other_replicas_forward() {
    let scene = scene().await;
    let other = scene.keyring.access_key("another");
    assert_eq!(ask(&scene, "running", &other, 0).await.0, 403);
    let own = scene.keyring.access_key(UID);
    assert_eq!(ask(&scene, "nowhere", &own, 0).await.0, 403);
    scene.role.set(false);
    assert_eq!(ask(&scene, "running", &own, 0).await.0, 421);
}
