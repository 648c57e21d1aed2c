#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use crate::arena::{Arena, SUBSCRIPTION};
use crate::arm::document;

const C: &str = "/resourceGroups/g/providers/Microsoft.Compute";

fn arena() -> Arena {
    let mut arena = Arena::new();
    arena.group("g");
    for name in ["a", "b", "c"] {
        let made = arena.done("PUT", &format!("{C}/virtualMachines/{name}"), machine(&[]));
        assert_eq!(made.0, 201);
    }
    arena
}

fn disk(name: &str) -> String {
    format!("{SUBSCRIPTION}{C}/disks/{name}")
}

fn machine(disks: &[&str]) -> Value {
    let disks: Vec<Value> = disks
        .iter()
        .zip(0..)
        .map(|(name, lun)| json!({"lun": lun, "createOption": "Attach", "managedDisk": {"id": disk(name)}}))
        .collect();
    json!({"location": "eastus", "properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "storageProfile": {"dataDisks": disks}}})
}

fn make_disk(arena: &mut Arena, name: &str, more: Value) {
    let mut properties = json!({"creationData": {"createOption": "Empty"}, "diskSizeGB": 4});
    document::overlay(&mut properties, &more);
    let body = json!({"location": "eastus", "properties": properties});
    assert_eq!(arena.done("PUT", &format!("{C}/disks/{name}"), body).0, 202);
}

fn have(arena: &mut Arena, name: &str, disks: &[&str]) -> (u16, String) {
    arena.done(
        "PUT",
        &format!("{C}/virtualMachines/{name}"),
        machine(disks),
    )
}

fn get(arena: &mut Arena, path: &str) -> Value {
    let reply = arena.ask("GET", &format!("{C}/{path}"), Value::Null);
    reply.document().clone()
}

fn state(arena: &mut Arena, name: &str) -> Value {
    get(arena, &format!("disks/{name}"))["properties"]["diskState"].clone()
}

#[test]
fn a_disk_is_its_machines_until_that_has_let_go_of_it() {
    let mut arena = arena();
    make_disk(&mut arena, "d", json!({}));
    assert_eq!(have(&mut arena, "a", &["d"]).0, 200);
    let entry = get(&mut arena, "virtualMachines/a")["properties"]["storageProfile"]["dataDisks"]
        [0]
    .clone();
    assert_eq!(
        (&entry["name"], &entry["diskSizeGB"]),
        (&json!("d"), &json!(4))
    );
    let detach = arena.ask("PUT", &format!("{C}/virtualMachines/a"), machine(&[]));
    assert_eq!(detach.status, 200);
    let early = arena.ask("PUT", &format!("{C}/virtualMachines/b"), machine(&["d"]));
    assert_eq!(
        early.document()["error"]["code"],
        "AttachDiskWhileBeingDetached"
    );
    assert_eq!(state(&mut arena, "d"), "Attached");
    arena.settle();
    assert_eq!(state(&mut arena, "d"), "Unattached");
    assert_eq!(have(&mut arena, "b", &["d"]).0, 200);
    // Taken away and given back before that came to its end.
    arena.ask("PUT", &format!("{C}/virtualMachines/b"), machine(&[]));
    assert_eq!(have(&mut arena, "b", &["d"]).0, 200);
    assert_eq!(state(&mut arena, "d"), "Attached");
    let gone = arena.done("DELETE", &format!("{C}/virtualMachines/b"), Value::Null);
    assert_eq!(gone.0, 202);
    assert_eq!(state(&mut arena, "d"), "Unattached");
}

#[test]
fn a_shared_disk_has_as_many_machines_as_it_says() {
    let mut arena = arena();
    make_disk(&mut arena, "s", json!({"maxShares": 2}));
    assert_eq!(have(&mut arena, "a", &["s"]).0, 200);
    assert_eq!(have(&mut arena, "b", &["s"]).0, 200);
    assert_eq!(have(&mut arena, "c", &["s"]).0, 409);
    let shown = get(&mut arena, "disks/s");
    assert_eq!(shown["managedByExtended"].as_array().unwrap().len(), 2);
    assert_eq!(
        arena.done("DELETE", &format!("{C}/disks/s"), Value::Null).0,
        409
    );
    assert_eq!(have(&mut arena, "a", &[]).0, 200);
    assert_eq!(state(&mut arena, "s"), "Attached");
    assert_eq!(have(&mut arena, "c", &["s"]).0, 200);
    assert_eq!(
        arena.done("DELETE", "/resourceGroups/g", Value::Null).0,
        202
    );
}

#[test]
fn disks_follow_the_power_of_their_machine_and_the_power_what_is_seen() {
    let mut arena = arena();
    make_disk(&mut arena, "d", json!({}));
    have(&mut arena, "a", &["d"]);
    let id = format!("{SUBSCRIPTION}{C}/virtualMachines/a");
    let power = |arena: &mut Arena| {
        let view = get(arena, "virtualMachines/a/instanceView");
        view["statuses"][1]["code"].as_str().unwrap().to_owned()
    };
    let act = |arena: &mut Arena, word: &str| {
        arena
            .done(
                "POST",
                &format!("{C}/virtualMachines/a/{word}"),
                Value::Null,
            )
            .0
    };
    assert_eq!(act(&mut arena, "deallocate"), 202);
    assert_eq!(state(&mut arena, "d"), "Reserved");
    arena.turn(|turn| super::seen(turn, &id, false));
    assert_eq!(power(&mut arena), "PowerState/deallocated");
    assert_eq!(act(&mut arena, "start"), 202);
    assert_eq!(state(&mut arena, "d"), "Attached");
    // It went off by itself; what is seen while somebody acts on it does not count.
    arena.turn(|turn| super::seen(turn, &id, false));
    assert_eq!(power(&mut arena), "PowerState/stopped");
    arena.ask("POST", &format!("{C}/virtualMachines/a/start"), Value::Null);
    arena.turn(|turn| super::seen(turn, &id, false));
    assert_eq!(power(&mut arena), "PowerState/running");
}

#[test]
fn machines_make_disks_that_are_not_there_and_take_them_along() {
    let mut arena = arena();
    let mut body = machine(&[]);
    body["properties"]["storageProfile"]["dataDisks"] = json!([{"lun": 1, "createOption": "Empty", "name": "own", "diskSizeGB": 7, "deleteOption": "Delete"}]);
    let path = format!("{C}/virtualMachines/a");
    assert_eq!(arena.done("PUT", &path, body.clone()).0, 200);
    assert_eq!(state(&mut arena, "own"), "Attached");
    assert_eq!(
        arena.done("PUT", &path, body.clone()).0,
        200,
        "it has it already"
    );
    let taken = arena.done("PUT", &format!("{C}/virtualMachines/b"), body);
    assert_eq!(taken, (409, "ConflictingUserInput".to_owned()));
    arena.done("DELETE", &path, Value::Null);
    let gone = arena.ask("GET", &format!("{C}/disks/own"), Value::Null);
    assert_eq!(gone.status, 404);
}

#[test]
fn what_is_protected_is_shown_to_nobody_and_a_machine_that_is_off_runs_nothing() {
    let mut arena = arena();
    let path = format!("{C}/virtualMachines/a/extensions/e");
    let body = json!({"location": "eastus", "properties": {"publisher": "p", "type": "t", "typeHandlerVersion": "1.0",
        "protectedSettings": {"commandToExecute": "secret"}}});
    assert_eq!(arena.done("PUT", &path, body.clone()).0, 201);
    let shown = get(&mut arena, "virtualMachines/a/extensions/e").to_string();
    assert!(!shown.contains("secret"), "{shown}");
    arena.done(
        "POST",
        &format!("{C}/virtualMachines/a/powerOff"),
        Value::Null,
    );
    let refused = arena.done("PUT", &format!("{path}2"), body);
    assert_eq!(refused, (409, "OperationNotAllowed".to_owned()));
}

#[test]
fn a_console_is_read_for_a_while() {
    let mut arena = arena();
    let path = format!(
        "{C}/virtualMachines/a/retrieveBootDiagnosticsData?sasUriExpirationTimeInMinutes=5"
    );
    let reply = arena.ask("POST", &path, Value::Null);
    let address = reply.document()["serialConsoleLogBlobUri"]
        .as_str()
        .unwrap()
        .to_owned();
    let secret = address.split('/').nth(4).unwrap().to_owned();
    let of = |arena: &mut Arena| arena.turn(|turn| super::console_of(turn, &secret));
    assert_eq!(of(&mut arena).unwrap().name, "a");
    arena.now += jiff::SignedDuration::from_mins(6);
    assert_eq!(of(&mut arena), None);
}
