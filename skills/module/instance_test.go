package module_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/sandbox"
	"rouse/skills/module"
)

// TestAnswers checks that each call gets its own answer in any order, and that errors keep their
// properties.
func TestAnswers(t *testing.T) {
	t.Parallel()
	i := start(t, `export async function execute(args: unknown, host: any) {
		const told: string[] = [];
		const tell = (name: string) => (v: any) => told.push(name + " " + JSON.stringify(v) + " " + Date.now() % 100000);
		const sorry = (name: string) => (e: any) => told.push([name, e instanceof Error, e.name, e.message, e.code].join(" "));
		await Promise.all([host.storage.get("a").then(tell("a")), host.storage.get("b").then(tell("b")), host.storage.set("c", undefined).catch(sorry("c")), host.storage.get().catch(sorry("d"))]);
		return told;
	}`, module.Start{Surface: module.Surface{Methods: []string{"storage.get", "storage.set"}}})

	e := next(t, i)
	if len(e.Calls) != 4 || string(e.Calls[2].Args) != `["c",null]` || string(e.Calls[3].Args) != `[]` {
		t.Fatalf("%+v", e)
	}
	e = next(t, i, module.Answer{ID: 2, Value: rawMessage(`{"__proto__":{"x":1}}`), Now: begun.Add(time.Second)}, module.Answer{ID: 99, Value: rawMessage("1")})
	if e.End != nil || len(e.Calls) != 0 {
		t.Fatalf("it did not wait for the others: %+v", e)
	}
	e = next(t, i, module.Answer{ID: 3, Error: &module.CallError{Name: "ConflictError", Message: "it was changed", Code: "conflict"}},
		module.Answer{ID: 4, Error: &module.CallError{Message: "no"}}, module.Answer{ID: 1, Now: begun})
	want(t, ended(t, e), `["b {\"__proto__\":{\"x\":1}} 1000","c true ConflictError it was changed conflict","d true Error no ","a undefined 1000"]`)
}

// TestSurface checks that only listed members exist. host.log is a function and an object (OSL-08).
func TestSurface(t *testing.T) {
	t.Parallel()
	i := start(t, `export async function execute(args: unknown, host: any) {
		const before = host.run.getStepCount();
		await host.run.reportStep("one");
		host.log("warn", "text", 1); host.log("plain"); host.log.error({ a: 1 });
		let refused = "";
		try { await host.vault.resolveBinding("x"); } catch (e) { refused = e.name; }
		return [before, host.run.getStepCount(), host.skillId, host.config.list, typeof host.vault, typeof host.run.pause, typeof host.log.trace, refused, Object.keys(host).sort().join()];
	}`, module.Start{Surface: module.Surface{Methods: []string{"run.reportStep", "log.info"}, Getters: map[string]rawMessage{"run.getStepCount": rawMessage("0")},
		Constants: map[string]rawMessage{"skillId": rawMessage(`"s"`), "config": rawMessage(`{"list":[1]}`)}}})
	next(t, i)
	e := next(t, i, module.Answer{ID: 1, Getters: map[string]rawMessage{"run.getStepCount": rawMessage("1")}})
	want(t, ended(t, e), `[0,1,"s",[1],"undefined","undefined","undefined","TypeError","config,log,run,skillId"]`)
	if got := fmt.Sprint(e.Logs); got != `[{host warn text 1} {host info plain} {host error {"a":1}}]` {
		t.Error(got)
	}
}

// TestBlocking checks that a blocking call blocks the module until its answer, whether it is
// awaited or not (OSL-14).
func TestBlocking(t *testing.T) {
	t.Parallel()
	surface := module.Surface{Methods: []string{"run.reportStep", "storage.set"}, Blocking: []string{"run.reportStep"}, Getters: map[string]rawMessage{"run.getStepCount": rawMessage("0")}}
	i := start(t, `export async function execute(args: unknown, host: any) {
		const told: string[] = [];
		setTimeout(() => told.push("timer"), 1);
		host.storage.set("a").then(() => told.push("a"));
		host.run.reportStep("one").then(() => told.push("step"));
		told.push("count " + host.run.getStepCount());
		const b = host.storage.set("b");
		Array.prototype.includes = () => false;
		host.run.reportStep("two").catch((e) => told.push(e.code));
		await b;
		return told.join();
	}`, module.Start{Surface: surface, Timeout: time.Minute})

	e := next(t, i)
	if len(e.Calls) != 2 || e.Calls[1].Method != "run.reportStep" || e.End != nil {
		t.Fatalf("%+v", e)
	}
	e = next(t, i, module.Answer{ID: 2, Getters: map[string]rawMessage{"run.getStepCount": rawMessage("7")}}, module.Answer{ID: 1, Now: begun.Add(time.Second)})
	if len(e.Calls) != 2 || string(e.Calls[0].Args) != `["b"]` || string(e.Calls[1].Args) != `["two"]` {
		t.Fatalf("%+v", e)
	}
	e = next(t, i, module.Answer{ID: 4, Error: &module.CallError{Code: "no"}})
	if len(e.Calls) != 0 || e.End != nil {
		t.Fatalf("%+v", e)
	}
	want(t, ended(t, next(t, i, module.Answer{ID: 3})), `"count 7,step,timer,a,no"`)

	halted := start(t, `export async function execute(args: unknown, host: any) {
		try { host.run.reportStep("one"); host.storage.set("a"); for (;;) host.run.reportStep("more") } catch { host.storage.set("b") } finally { host.storage.set("c") }
	}`, module.Start{Surface: surface, Timeout: time.Minute})
	if e := next(t, halted); len(e.Calls) != 1 || e.End != nil {
		t.Fatalf("%+v", e)
	}
	if err := halted.Close(); err != nil { // it is blocked in the call
		t.Fatal(err)
	}

	// The execution time is limited before and after such a call.
	for _, body := range []string{`for (;;) {}`, `host.run.reportStep("one"); for (;;) {}`} {
		i := start(t, `export async function execute(args: unknown, host: any) { `+body+` }`, module.Start{Surface: surface, Timeout: 200 * time.Millisecond})
		e := next(t, i)
		if len(e.Calls) == 1 {
			e = next(t, i, module.Answer{ID: 1})
		}
		if e.End == nil || e.End.Status != module.TimedOut {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// TestFetch checks that the result of fetch has the standard interface (OSL-08).
func TestFetch(t *testing.T) {
	t.Parallel()
	i := start(t, `export async function execute(args: unknown, host: any) {
		const r = await host.network.fetch(new URL("https://example.com/a"), { method: "POST", body: new Uint8Array([1, 2, 255]) });
		const b = await host.network.fetch("https://example.com/b");
		const c = new AbortController();
		let stopped = "";
		const third = host.network.fetch("https://example.com/c", { signal: c.signal }).catch((e: any) => stopped = e.name);
		c.abort();
		await third;
		return [r.ok, r.status, r.statusText, r.url, r.headers.get("content-TYPE"), r.headers.has("x"), [...r.headers].length, await r.text(), await r.json(), b.ok, [...new Uint8Array(await b.arrayBuffer())], stopped];
	}`, module.Start{Surface: module.Surface{Methods: []string{"network.fetch"}}})
	e := next(t, i)
	if got := string(e.Calls[0].Args); got != `["https://example.com/a",{"method":"POST","body":{"$base64":"AQL/"}}]` {
		t.Error(got)
	}
	next(t, i, module.Answer{ID: 1, Value: raw(t, module.Response{URL: "https://example.com/a", Status: 201, StatusText: "Created", Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"a":1}`})})
	e = next(t, i, module.Answer{ID: 2, Value: raw(t, module.Response{Status: 404, BodyBase64: "AP8="})})
	want(t, ended(t, e), `[true,201,"Created","https://example.com/a","application/json",false,1,"{\"a\":1}",{"a":1},false,[0,255],"AbortError"]`)
	if len(e.Calls) != 1 || e.Calls[0].ID != 3 {
		t.Errorf("a call that nobody waits for is %+v", e.Calls)
	}
}

// TestTimersAndAnswers checks that timers due before an answer fire before it, by the clock of the
// answers.
func TestTimersAndAnswers(t *testing.T) {
	t.Parallel()
	for after, result := range map[time.Duration]string{4 * time.Second: `["answer",4000]`, 6 * time.Second: `["late",5000]`} {
		i := start(t, `export async function execute(args: unknown, host: any) {
			const begun = Date.now();
			const first = await Promise.race([host.llm.complete({}).then(() => "answer"), new Promise((late) => setTimeout(() => late("late"), 5000))]);
			return [first, Date.now() - begun];
		}`, module.Start{Surface: module.Surface{Methods: []string{"llm.complete"}}})
		next(t, i)
		e := next(t, i, module.Answer{ID: 1, Now: begun.Add(after)})
		want(t, ended(t, e), result) // code woken by a timer sees the timer's time
	}
}

// TestSameAgain checks that the behavior of a module depends only on seed, clock and answers.
func TestSameAgain(t *testing.T) {
	t.Parallel()
	play := func(seed byte) string {
		i := start(t, `export async function execute(args: unknown, host: any) {
			const out: unknown[] = [crypto.randomUUID(), Math.random(), Date.now()];
			out.push(await host.storage.get("k"), new Date().toISOString(), [...crypto.getRandomValues(new Uint8Array(300))].join());
			await new Promise((done) => setTimeout(done, 3));
			return [...out, Date.now(), Math.random()];
		}`, module.Start{Seed: [32]byte{seed}, Surface: module.Surface{Methods: []string{"storage.get"}}})
		next(t, i)
		return string(ended(t, next(t, i, module.Answer{ID: 1, Value: rawMessage("1"), Now: begun.Add(time.Minute)})).Value)
	}

	first, again, other := play(1), play(1), play(2)
	if first != again || first == other || len(first) < 500 {
		t.Errorf("%.100s\n%.100s\n%.100s", first, again, other)
	}
}

// TestWaitingIsFree checks that time spent by the host does not count as execution time. The time
// of several steps adds up (OSL-10).
func TestWaitingIsFree(t *testing.T) {
	t.Parallel()
	i := start(t, `export async function execute(args: unknown, host: any) {
		await host.storage.get("k");
		await new Promise((done) => setTimeout(done, 1600));
		await host.storage.get("k");
		await new Promise((done) => setTimeout(done, 1600));
	}`, module.Start{Timeout: 3 * time.Second, Surface: module.Surface{Methods: []string{"storage.get"}}})
	next(t, i)
	if end := run(t, "export async function execute() { await new Promise((done) => setTimeout(done, 3100)) }", module.Start{Timeout: time.Minute}); end.Status != module.Returned {
		t.Fatal(end)
	}
	if e := next(t, i, module.Answer{ID: 1}); e.End != nil {
		t.Fatalf("it ended while its host worked: %v", e.End)
	}
	if end := ended(t, next(t, i, module.Answer{ID: 2})); end.Status != module.TimedOut {
		t.Errorf("it ended with %v", end)
	}
}

// TestAnswerTooLarge checks that a too large answer rejects its call and that the module continues.
func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	i := start(t, `export async function execute(args: unknown, host: any) { return host.storage.get("k").catch((e: any) => [e.name, e.code]); }`,
		module.Start{Surface: module.Surface{Methods: []string{"storage.get"}}})
	next(t, i)
	e := next(t, i, module.Answer{ID: 1, Value: rawMessage(`"` + strings.Repeat("x", module.MaxMessage) + `"`)})
	want(t, ended(t, e), `["RangeError","too_large"]`)

	// Answers of the maximum size are accepted. If there are many, the last ones are rejected.
	i = start(t, `export async function execute(args: unknown, host: any) {
		return Promise.all([1, 2, 3].map((n) => host.storage.get(n).then((v: string) => v.length, (e: any) => e.code)));
	}`, module.Start{Surface: module.Surface{Methods: []string{"storage.get"}}})
	next(t, i)
	large := rawMessage(`"` + strings.Repeat("x", module.MaxMessage-2) + `"`)
	e = next(t, i, module.Answer{ID: 1, Value: large}, module.Answer{ID: 2, Value: large}, module.Answer{ID: 3, Value: large})
	want(t, ended(t, e), `[16777214,16777214,"too_large"]`)
}

// TestAnswerThatCannotBeRead checks that an invalid answer rejects its call and that the module
// continues.
func TestAnswerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"{", strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5), strings.Repeat("[", 9990) + strings.Repeat("]", 9990)} {
		i := start(t, `export async function execute(args: unknown, host: any) { return host.storage.get("k").catch((e: any) => e.name); }`,
			module.Start{Surface: module.Surface{Methods: []string{"storage.get"}}})
		next(t, i)
		end := ended(t, next(t, i, module.Answer{ID: 1, Value: rawMessage(value)}))
		if string(end.Value) != `"SyntaxError"` && string(end.Value) != value {
			t.Errorf("%.10s…: it ended with %.100s %.100s", value, end.String(), end.Value)
		}
	}
}

// TestFresh checks that calls do not share state.
func TestFresh(t *testing.T) {
	t.Parallel()
	const text = `let n = 0; export async function execute() { (globalThis as any).left ??= 0; (Array.prototype as any).left ??= 0; return [++n, ++(globalThis as any).left, ++(Array.prototype as any).left]; }`
	for range 2 {
		want(t, run(t, text, module.Start{}), "[1,1,1]")
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": `export async function execute(n: number, host: any) { let sum = 0; for (let i = 0; i < 20; i++) sum += await host.storage.get(n); return sum; }`}))
	if err != nil {
		t.Fatal(err)
	}

	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			i, err := m.Start(t.Context(), p, module.Start{Export: "execute", Args: raw(t, n), Surface: module.Surface{Methods: []string{"storage.get"}}})
			if err != nil {
				t.Error(err)
				return
			}
			defer i.Close()

			e, err := i.Next(t.Context(), nil)
			for err == nil && e.End == nil {
				e, err = i.Next(t.Context(), []module.Answer{{ID: e.Calls[0].ID, Value: raw(t, n)}})
			}
			if err != nil || string(e.End.Value) != fmt.Sprint(20*n) {
				t.Errorf("%d: %+v (%v)", n, e, err)
			}
		})
	}
	all.Wait()
}

// TestCancelled checks that the end of the context ends the module and that its cause is returned.
func TestCancelled(t *testing.T) {
	t.Parallel()
	i := start(t, "export async function execute() { for (;;) {} }", module.Start{Timeout: time.Minute})
	why := errors.New("the run was cancelled")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, why)
	defer cancel()
	if e, err := i.Next(ctx, nil); !errors.Is(err, why) {
		t.Errorf("%+v (%v)", e, err)
	}
	if _, err := i.Next(t.Context(), nil); err == nil {
		t.Error("it went on")
	}
}

// TestClosed checks that Close ends a busy instance.
func TestClosed(t *testing.T) {
	t.Parallel()
	i := start(t, "export async function execute() { for (;;) {} }", module.Start{Timeout: time.Minute})
	time.AfterFunc(200*time.Millisecond, func() { _ = i.Close() })
	if e, err := i.Next(t.Context(), nil); err != nil || e.End == nil || e.End.Status != module.Crashed {
		t.Errorf("%+v (%v)", e, err)
	}
}

// TestConfined checks that the process uses the strongest available tier, and that a start fails if
// the tier is too weak (OSL-10).
func TestConfined(t *testing.T) {
	t.Parallel()
	i := start(t, "export async function execute() {}", module.Start{})
	next(t, i)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := confined()
	if err != nil {
		t.Fatal(err)
	}
	if tier, _ := s.Tier(t.Context()); i.Tier() != tier {
		t.Errorf("it ran on tier %s, and there is %s", i.Tier(), tier)
	}

	weak, err := sandbox.New(sandbox.Options{MaxTier: sandbox.TierNone})
	if err != nil {
		t.Fatal(err)
	}
	m, err := module.New(module.Options{Sandbox: weak})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": "export const execute = 1;"}))
	if err != nil {
		t.Fatal(err)
	}
	var tier *sandbox.TierError
	if _, err := m.Start(t.Context(), p, module.Start{Export: "execute"}); !errors.As(err, &tier) {
		t.Errorf("it was started: %v", err)
	}
}

// TestLittleMemory checks that a module with too little memory to start ends with the status Memory
// (OSL-10).
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	const large = "export async function execute() { return new Uint8Array(64 << 20).length; }"
	if end := run(t, large, module.Start{MemoryMB: 128}); string(end.Value) != "67108864" {
		t.Errorf("with room for it, it ended with %v", end)
	}
	if end := run(t, large, module.Start{MemoryMB: 32}); end.Status == module.Returned {
		t.Errorf("with room for half of it, it ended with %v", end)
	}
	if end := run(t, "export async function execute() { return new Array(1e6).fill(1).length; }", module.Start{MemoryMB: 1}); end.Status != module.Memory {
		t.Errorf("it ended with %v", end)
	}
	m := newMachine(t)
	p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": "export const execute = 1;"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(t.Context(), p, module.Start{MemoryMB: 1 << 20}); err == nil {
		t.Error("it was given a terabyte")
	}
}

// TestZone checks that local times use the given zone, with and without Intl.
func TestZone(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	end := run(t, `export async function execute() { const d = new Date(); return [d.getHours(), d.getTimezoneOffset(), d.toLocaleTimeString("en-US"), d.toLocaleTimeString("en-US", { timeZone: "Asia/Tokyo" })]; }`, module.Start{Zone: zone})
	want(t, end, `[4,300,"4:30:00 AM","6:30:00 PM"]`)
}

// TestClockOfTheHost checks that a module cannot read the real time.
func TestClockOfTheHost(t *testing.T) {
	t.Parallel()
	end := run(t, `export async function execute() {
		const f = new Intl.DateTimeFormat("en-US", { timeZone: "UTC" });
		class Later extends Date {}
		return [f.format(), f.format(undefined), f.formatToParts()[4].value, new Date().getUTCFullYear(), Date().slice(11, 15), new Later().getUTCFullYear(), Reflect.construct(Date, []).getUTCFullYear(),
			new (Object.getPrototypeOf(new Date()).constructor)().getUTCFullYear(), structuredClone(new Date()).getUTCFullYear(), Date.prototype.constructor === Date];
	}`, module.Start{Now: time.Date(2020, 2, 3, 0, 0, 0, 0, time.UTC)})
	want(t, end, `["2/3/2020","2/3/2020","2020",2020,"2020",2020,2020,2020,2020,true]`)
}

// TestEachTier checks that modules and WebAssembly run on every available tier and without a
// sandbox.
func TestEachTier(t *testing.T) {
	unraced(t)
	t.Parallel()
	for _, o := range []sandbox.Options{{MaxTier: sandbox.TierNamespaces}, {MaxTier: sandbox.TierLandlock}, {OffReason: "a test"}} {
		s, err := sandbox.New(o)
		if err != nil {
			t.Fatal(err)
		}
		tier, lacks := s.Tier(t.Context())
		if o.OffReason == "" && tier != o.MaxTier {
			t.Logf("there is no tier %s here: %q", o.MaxTier, lacks)
			continue
		}

		m, err := module.New(module.Options{Sandbox: s})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Compile(t.Context(), skill(t, map[string]string{"module.ts": `export const execute = async (n: number, host: any) => (await host.wasm.instantiate("m")).exports.add(n, n);`}))
		if err != nil {
			t.Fatal(err)
		}
		with := withWASM(goodWASM.build(), "add")
		with.Export, with.Args = "execute", rawMessage("4")
		i, err := m.Start(t.Context(), p, with)
		if err != nil {
			t.Fatal(err)
		}

		want(t, ended(t, next(t, i)), "8")
		if err := errors.Join(i.Close(), s.Close()); err != nil || i.Tier() != tier {
			t.Errorf("it ran on tier %s, not %s (%v)", i.Tier(), tier, err)
		}
	}
}
