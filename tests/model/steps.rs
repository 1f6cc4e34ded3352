//! What can happen next, for the checker to choose from.

use stateright::{Model, Property};
use tenure::core::Event;

use super::peer::Peer;
use super::store::Store;
use super::wire::{Answer, What};
use super::world::{Broken, FirstLease, Pod, Variant, World};

/// Numbers are pods, and for those on the wire the request's or answer's place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A second passes.
    Tick,
    Timeout(usize),
    /// A request arrives, takes effect and is answered.
    Serve(usize),
    /// It takes effect, and its answer is held up.
    Commit(usize),
    /// Its sender is told that it failed. It may arrive all the same.
    Fail(usize),
    Answer(usize),
    Change(usize),
    Replay(usize),
    Stall(usize),
    Cut(usize),
    Heal(usize),
    Pause(usize),
    Resume(usize),
    Crash(usize),
    Restart(usize),
    Delete,
    Remake,
    Poll(usize),
    Word(usize),
    Hold(usize),
    Unhold(usize),
    Shutdown(usize),
    PeerTries,
    PeerReleases,
}

impl Step {
    /// Whether it happens without anybody's fault, and nobody asks for it.
    pub(crate) fn is_usual(self) -> bool {
        use Step::*;
        matches!(
            self,
            Tick | Timeout(_) | Serve(_) | Answer(_) | Change(_) | Heal(_) | Resume(_) | PeerTries
        )
    }
}

fn spend(budget: &mut u8) {
    *budget = budget.checked_sub(1).expect("there was some left");
}

impl World {
    pub(crate) fn first(variant: &Variant) -> World {
        let mut world = World {
            second: 0,
            pods: vec![Pod::default(); variant.pods],
            store: Store::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            peer: None,
            left: variant.budget,
            acquirer: None,
            last_epoch: 0,
            broken: None,
        };
        match variant.lease {
            FirstLease::Missing => {}
            FirstLease::Empty => world.make_empty(),
            FirstLease::Peer => {
                world.make_empty();
                world.peer = Some(Peer::default());
                world.peer_tries();
            }
        }
        for pod in 0..variant.pods {
            world.start(variant, pod);
            if variant.settled {
                world.settle(variant);
            }
        }
        world
    }

    /// Serves all there is, in order.
    fn settle(&mut self, variant: &Variant) {
        while !self.requests.is_empty() {
            self.serve(variant, 0);
            for pod in 0..self.pods.len() {
                while self.next_change(pod).is_some() {
                    self.deliver_change(pod);
                }
            }
        }
        self.tidy(variant);
    }

    fn tidy(&mut self, variant: &Variant) {
        self.compact();
        self.forget_the_hopeless(variant);
    }

    fn serve(&mut self, variant: &Variant, at: usize) {
        let request = self.requests.remove(at);
        let event = self.arrive(variant, &request);
        if !request.orphan {
            self.happen(usize::from(request.pod), event);
        }
    }

    fn is_up(&self, pod: usize) -> bool {
        self.pods[pod].process.is_some()
    }

    /// Whether it can act on what comes in.
    fn acts(&self, pod: usize) -> bool {
        self.is_up(pod) && !self.pods[pod].paused
    }

    fn hears(&self, pod: usize) -> bool {
        self.acts(pod) && !self.pods[pod].cut
    }

    /// Requests that would be held up if a second passed now; None: it must not.
    fn held_up_by_a_tick(&self, variant: &Variant) -> Option<u8> {
        let pods = 0..self.pods.len();
        let due = |pod| self.acts(pod) && self.is_due(pod);
        let news = |pod| self.acts(pod) && self.next_change(pod).is_some();
        if self.second >= variant.horizon || pods.clone().any(|pod| due(pod) || news(pod)) {
            return None;
        }
        let fresh = self.requests.iter().filter(|request| !request.late).count() as u8;
        (fresh <= self.left.late).then_some(fresh)
    }

    fn wire_steps(&self, steps: &mut Vec<Step>) {
        for (at, request) in self.requests.iter().enumerate() {
            let pod = usize::from(request.pod);
            if request.orphan || self.hears(pod) {
                steps.push(Step::Serve(at));
            }
            if request.orphan {
                continue;
            }
            let free = !self.hears(pod);
            let write = matches!(request.what, What::Write(_));
            if (free && write) || self.left.late > 0 {
                steps.push(Step::Commit(at));
            }
            if self.left.fail > 0 && self.acts(pod) {
                steps.push(Step::Fail(at));
            }
        }
        for (at, answer) in self.answers.iter().enumerate() {
            if self.hears(usize::from(answer.pod)) {
                steps.push(Step::Answer(at));
            }
        }
    }

    fn pod_steps(&self, variant: &Variant, pod: usize, steps: &mut Vec<Step>) {
        let it = &self.pods[pod];
        let left = &self.left;
        let mut offer = |step: Step, offered: bool| {
            if offered {
                steps.push(step);
            }
        };
        let Some(process) = &it.process else {
            let again = left.restart > 0 && it.life > 0;
            offer(Step::Restart(pod), again && left.remake == variant.budget.remake);
            return;
        };
        let acts = !it.paused;
        offer(Step::Timeout(pod), acts && self.is_due(pod));
        let stream = it.stream.as_ref().filter(|stream| !stream.stalled && !it.cut);
        offer(Step::Change(pod), acts && self.next_change(pod).is_some());
        let old = |after: u128| self.store.log.first().is_some_and(|c| c.version() <= after);
        let replayable = stream.is_some_and(|stream| old(stream.after));
        offer(Step::Replay(pod), acts && left.replay > 0 && replayable);
        offer(Step::Stall(pod), left.stall > 0 && stream.is_some());
        offer(Step::Cut(pod), left.cut > 0 && !it.cut);
        offer(Step::Heal(pod), it.cut);
        offer(Step::Pause(pod), left.pause > 0 && !it.paused);
        offer(Step::Resume(pod), it.paused);
        offer(Step::Crash(pod), left.crash > 0);
        let until = self.grant(pod).and_then(|(_, until)| until);
        let more = until.is_some_and(|until| until > it.granted);
        offer(Step::Poll(pod), left.poll > 0 && more);
        // The app runs in this pod, and has not stopped: it can say so.
        offer(Step::Word(pod), left.word > 0 && acts && process.held_epoch().is_some());
        offer(Step::Hold(pod), left.hold > 0 && !it.held);
        offer(Step::Unhold(pod), it.held);
        offer(Step::Shutdown(pod), left.shutdown > 0 && acts);
    }

    fn take(&mut self, variant: &Variant, step: Step) {
        match step {
            Step::Tick => {
                let late = self.held_up_by_a_tick(variant).unwrap_or(0);
                self.left.late -= late;
                self.requests.iter_mut().for_each(|request| request.late = true);
                self.second += 1;
            }
            Step::Timeout(pod) => self.happen(pod, Event::Timeout),
            Step::Serve(at) => self.serve(variant, at),
            Step::Commit(at) => self.commit(variant, at),
            Step::Fail(at) => {
                spend(&mut self.left.fail);
                let event = World::failed(&self.requests[at]);
                let pod = usize::from(self.requests[at].pod);
                let id = self.requests[at].id;
                self.orphan(pod, |request| request.id == id);
                self.happen(pod, event);
            }
            Step::Answer(at) => {
                let Answer { pod, event } = self.answers.remove(at);
                self.happen(usize::from(pod), event);
            }
            Step::Change(pod) => self.deliver_change(pod),
            Step::Replay(pod) => {
                spend(&mut self.left.replay);
                self.replay(pod);
            }
            Step::Delete => {
                spend(&mut self.left.delete);
                self.delete();
            }
            Step::Remake => {
                spend(&mut self.left.remake);
                self.make_empty();
            }
            Step::PeerTries => {
                spend(&mut self.left.peer);
                self.peer_tries();
            }
            Step::PeerReleases => {
                spend(&mut self.left.peer);
                self.peer_releases();
            }
            other => self.befall(variant, other),
        }
    }

    fn commit(&mut self, variant: &Variant, at: usize) {
        let request = self.requests.remove(at);
        let pod = usize::from(request.pod);
        if self.hears(pod) {
            spend(&mut self.left.late);
        }
        let event = self.arrive(variant, &request);
        self.answers.push(Answer { pod: request.pod, event });
    }

    /// What happens to one candidate, or its app.
    fn befall(&mut self, variant: &Variant, step: Step) {
        match step {
            Step::Stall(pod) => {
                spend(&mut self.left.stall);
                self.pods[pod].stream.as_mut().expect("a watch").stalled = true;
            }
            Step::Cut(pod) => {
                spend(&mut self.left.cut);
                self.pods[pod].cut = true;
                let sent = |request: &&mut super::wire::Request| usize::from(request.pod) == pod;
                self.requests.iter_mut().filter(sent).for_each(|request| request.late = true);
                if let Some(stream) = &mut self.pods[pod].stream {
                    stream.stalled = true;
                }
            }
            Step::Heal(pod) => self.pods[pod].cut = false,
            Step::Pause(pod) => {
                spend(&mut self.left.pause);
                self.pods[pod].paused = true;
            }
            Step::Resume(pod) => self.pods[pod].paused = false,
            Step::Crash(pod) => {
                spend(&mut self.left.crash);
                self.crash(pod);
            }
            Step::Restart(pod) => {
                spend(&mut self.left.restart);
                self.start(variant, pod);
            }
            Step::Poll(pod) => {
                spend(&mut self.left.poll);
                self.poll(pod);
            }
            Step::Word(pod) => {
                spend(&mut self.left.word);
                let epoch = self.pods[pod].process.as_ref().and_then(|it| it.held_epoch());
                self.word(pod, epoch.expect("a term"));
            }
            Step::Hold(pod) => {
                spend(&mut self.left.hold);
                self.pods[pod].held = true;
                self.happen(pod, Event::HoldOpened);
            }
            Step::Unhold(pod) => {
                self.pods[pod].held = false;
                self.pods[pod].granted = 0;
                self.happen(pod, Event::HoldClosed { by_peer: true });
            }
            Step::Shutdown(pod) => {
                spend(&mut self.left.shutdown);
                self.happen(pod, Event::Shutdown);
            }
            other => unreachable!("{other:?}"),
        }
    }
}

pub(crate) const CORE: &str = "an assertion of the core";

impl Model for Variant {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::first(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_some() {
            return;
        }
        world.wire_steps(steps);
        for pod in 0..world.pods.len() {
            world.pod_steps(self, pod, steps);
        }
        let there = world.store.object.is_some();
        if world.left.delete > 0 && there {
            steps.push(Step::Delete);
        }
        // A Lease made empty just after a deletion fools a pod that starts just then, as is said
        // among the assumptions: no pod does.
        if world.left.remake > 0 && !there && world.left.restart == self.budget.restart {
            steps.push(Step::Remake);
        }
        if let Some(peer) = world.peer.as_ref().filter(|peer| !peer.is_gone())
            && world.left.peer > 0
        {
            steps.push(Step::PeerTries);
            if peer.believes() {
                steps.push(Step::PeerReleases);
            }
        }
        if world.held_up_by_a_tick(self).is_some() {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.take(self, step);
        next.tidy(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Variant>> {
        vec![
            Property::always("S1", |_, world: &World| !world.overlap()),
            Property::always("S2", |_, world: &World| world.broken != Some(Broken::S2)),
            Property::always("S4", |_, world: &World| world.broken != Some(Broken::S4)),
            Property::always("S5", |_, world: &World| {
                world.broken != Some(Broken::S5) && !world.leads_after_release()
            }),
            Property::always("S7", |_, world: &World| world.broken != Some(Broken::S7)),
            Property::always(CORE, |_, world: &World| {
                !matches!(world.broken, Some(Broken::Core(_)))
            }),
            Property::sometimes("a leader", |_, world: &World| {
                (0..world.pods.len()).any(|pod| world.grant(pod).is_some())
            }),
            Property::sometimes("a takeover", |_, world: &World| {
                let record = world.store.object.as_ref().map(|object| &object.record);
                let leads = (0..world.pods.len()).any(|pod| world.grant(pod).is_some());
                leads && record.is_some_and(|record| record.transitions >= Some(2))
            }),
            Property::sometimes("a release", |_, world: &World| {
                world.pods.iter().any(|pod| pod.released > 0)
            }),
            Property::sometimes("a re-creation", |_, world: &World| {
                let object = world.store.object.as_ref();
                object.is_some_and(|object| &*object.record.uid != "u1")
            }),
            Property::sometimes("a leader in a Lease made anew", |_, world: &World| {
                let object = world.store.object.as_ref();
                let anew = object.is_some_and(|object| &*object.record.uid != "u1");
                anew && (0..world.pods.len()).any(|pod| world.grant(pod).is_some())
            }),
            Property::sometimes("a restart that leads", |_, world: &World| {
                let again = |pod: usize| world.pods[pod].life > 1;
                (0..world.pods.len()).any(|pod| again(pod) && world.grant(pod).is_some())
            }),
        ]
    }
}
