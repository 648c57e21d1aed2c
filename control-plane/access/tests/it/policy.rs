use crate::golden;

#[test]
fn the_policy_equals_the_golden_files() {
    let Some(golden) = golden::policy() else {
        return;
    };
    let ours = access::policy::objects();
    for (ours, golden) in ours.iter().zip(&golden) {
        assert_eq!(ours, golden);
    }
    assert_eq!(ours.len(), golden.len());
}
