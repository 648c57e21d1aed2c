//! Validation answers for whatever decodes: no object makes it panic.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use crate::defaults::{self, tests::generated};
use crate::resources;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_two_objects_get_an_answer(
        kind in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 800),
    ) {
        let resource = kind.get(resources::all());
        let ty = resource.ty.built_in().unwrap();
        let mut choices = bytes.into_iter();
        let [new, old] = [(), ()].map(|()| {
            let object = generated(ty, 8, &mut choices);
            let mut object = objects::normalize::normalize(ty, object).unwrap().value;
            defaults::apply(ty, &mut object);
            object
        });
        let at_first = super::create(resource, &new);
        prop_assert_eq!(at_first, super::create(resource, &new));
        super::update(resource, &new, &old, "");
        for subresource in &resource.subresources {
            super::update(resource, &new, &old, subresource.name);
        }
    }
}
