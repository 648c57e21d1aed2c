//! A hundred thousand connections between a server's and an agent's tables, with random faults.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::agent::{Effect, Session};
use crate::lanes::FIRST_WINDOW;
use crate::link::{Wire, lock};
use crate::metrics::ServerMetrics;
use crate::packet::Packet;
use crate::server::{Backend, PendingDial};
use crate::strategies::Identifiers;

const CONNECTIONS: usize = 100_000;
const AT_ONCE: usize = 50;

struct World {
    chance: StdRng,
    backend: Arc<Backend>,
    session: Session,
    to_agent: VecDeque<Packet>,
    to_server: VecDeque<Packet>,
    dialling: Vec<(i64, i64)>,
    pending: Vec<PendingDial>,
    clients: Vec<Wire>,
    endpoints: Vec<Wire>,
    dialled: i64,
}

impl World {
    fn new(extended: bool, seed: u64) -> World {
        let window = extended.then_some(FIRST_WINDOW);
        let metrics = Arc::new(ServerMetrics::default());
        World {
            chance: StdRng::seed_from_u64(seed),
            backend: Backend::new("a".to_owned(), Identifiers::default(), window, metrics),
            session: Session::new(window),
            to_agent: VecDeque::new(),
            to_server: VecDeque::new(),
            dialling: Vec::new(),
            pending: Vec::new(),
            clients: Vec::new(),
            endpoints: Vec::new(),
            dialled: 0,
        }
    }

    fn step(&mut self) {
        match self.chance.random_range(0..16) {
            0..3 if self.pending.len() + self.clients.len() < AT_ONCE => self.dial(),
            3..5 => self.answer(),
            5 => forget_one(&mut self.chance, &mut self.pending),
            6 => forget_one(&mut self.chance, &mut self.clients),
            7 => forget_one(&mut self.chance, &mut self.endpoints),
            8 | 9 => talk(&mut self.chance, &self.clients),
            10 | 11 => talk(&mut self.chance, &self.endpoints),
            12 => {
                let packet = self.nonsense();
                self.to_agent.push_back(packet);
            }
            13 => {
                let packet = self.nonsense();
                self.to_server.push_back(packet);
            }
            _ => self.travel(20),
        }
    }

    fn dial(&mut self) {
        self.dialled += 1;
        let dial = self
            .backend
            .dial(self.dialled, String::new(), String::new());
        self.pending
            .push(dial.unwrap_or_else(|error| panic!("{error}")));
    }

    // A destination answers, refuses, or was no longer wanted.
    fn answer(&mut self) {
        if self.dialling.is_empty() {
            return;
        }
        let which = self.chance.random_range(0..self.dialling.len());
        let (random, id) = self.dialling.swap_remove(which);
        if !self.session.finished(random) {
            return;
        }
        if self.chance.random_ratio(1, 5) {
            return self.session.failed(random, "refused".to_owned());
        }
        self.endpoints.push(Wire::open(&self.session.lanes, id));
        let error = String::new();
        lock(&self.session.lanes).control(Packet::DialResponse { random, id, error });
    }

    fn nonsense(&mut self) -> Packet {
        let id = self.chance.random_range(0..self.dialled.max(1) + 5);
        let error = String::new();
        match self.chance.random_range(0..7) {
            0 => Packet::Data {
                id,
                data: Bytes::from_static(b"nonsense"),
            },
            1 => Packet::CloseRequest { id },
            2 => Packet::CloseResponse { id, error },
            3 => Packet::DialResponse {
                random: id,
                id: id + 1_000_000,
                error,
            },
            4 => Packet::DialClose { random: id },
            5 => Packet::Credit { id, bytes: -1 },
            _ => Packet::Unknown,
        }
    }

    fn travel(&mut self, count: usize) {
        for _ in 0..count {
            self.to_agent
                .extend(lock(&self.backend.lanes).next_packet());
            self.to_server
                .extend(lock(&self.session.lanes).next_packet());
            if let Some(packet) = self.to_agent.pop_front()
                && let Effect::Dial { random, id, .. } = self.session.receive(packet)
            {
                self.dialling.push((random, id));
            }
            if let Some(packet) = self.to_server.pop_front() {
                self.backend.receive(packet);
            }
        }
        for mut dial in std::mem::take(&mut self.pending) {
            match dial.try_answer() {
                None => self.pending.push(dial),
                Some(answer) => self.clients.extend(answer),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.backend.is_empty() && self.session.is_empty()
    }
}

fn forget_one<T>(chance: &mut StdRng, all: &mut Vec<T>) {
    if !all.is_empty() {
        all.swap_remove(chance.random_range(0..all.len()));
    }
}

fn talk(chance: &mut StdRng, all: &[Wire]) {
    if all.is_empty() {
        return;
    }
    let wire = &all[chance.random_range(0..all.len())];
    let mut cx = Context::from_waker(Waker::noop());
    match chance.random_range(0..6) {
        0 => wire.finish(String::new()),
        1 => wire.send_end(),
        2 | 3 => wire.send(Bytes::from(vec![1; chance.random_range(0..50_000)])),
        _ => drop(wire.poll_take(&mut cx)),
    }
}

#[test]
fn nothing_is_left_of_connections_with_faults() {
    for extended in [false, true] {
        let mut world = World::new(extended, 6);
        while world.dialled < CONNECTIONS as i64 / 2 {
            world.step();
        }
        // Everybody leaves; what was under way arrives.
        world.pending.clear();
        world.clients.clear();
        world.endpoints.clear();
        let (mut left_here, mut left_there) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            world.travel(20_000);
            while !world.dialling.is_empty() {
                world.answer();
            }
            world.endpoints.clear();
            lock(&world.backend.lanes).sweep(&mut left_here);
            lock(&world.session.lanes).sweep(&mut left_there);
        }
        assert!(world.is_empty(), "extended: {extended}");
    }
}
