// Guarded work in Node: one unit at a time, only while this pod leads. No packages.

const url = process.env.TENURE_URL ?? "http://localhost:4040";
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let stopping = false;
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => (stopping = true));

// {epoch, deadline} of a grant of at most 2 s, or null. No answer is no grant.
async function ask() {
  const asked = performance.now();
  try {
    const answer = await fetch(`${url}/leader?max_valid=2s`, { signal: AbortSignal.timeout(2000) });
    const said = await answer.json();
    if (!said.leader) return null;
    return { epoch: said.epoch, deadline: asked + said.waited_ms + said.valid_for_ms };
  } catch {
    return null;
  }
}

// One unit: much shorter than a grant, and with its epoch on every write.
async function work({ epoch, deadline }) {
  if (performance.now() >= deadline) return;
  console.log(`work epoch=${epoch}`);
  await sleep(200);
}

let working = null;
while (!stopping) {
  const grant = await ask();
  if (grant) {
    working = grant.epoch;
    await work(grant);
  } else {
    if (working) console.log("stop");
    working = null;
    await sleep(200);
  }
}

if (working) {
  // Nothing is running any more: let another lead at once.
  await fetch(`${url}/release`, { method: "POST", body: JSON.stringify({ epoch: working }) });
}
