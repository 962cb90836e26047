package module

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"modernc.org/quickjs"
	"modernc.org/quickjs/intl"
)

// moduleName is the file name of the program in stacks.
const moduleName = "module.js"

// maxJobs is the number of jobs after which QuickJS assumes a loop. Only the timeout ends a module
// here.
const maxJobs = 1 << 20

//go:embed js/globals.js
var globalsJS string

//go:embed js/wasm.js
var wasmJS string

//go:embed js/subtle.js
var subtleJS string

//go:embed js/core.js
var coreJS string

// machineVM is a QuickJS VM with a module. It runs in a child process.
type machineVM struct {
	vm     *quickjs.VM
	step   quickjs.Value // function of core.js
	random *rand.ChaCha8
	left   time.Duration // remaining execution time of the module
	until  time.Time     // end of the execution time while the VM runs
	timer  *time.Timer   // interrupts the VM at until
	now    int64         // the module's clock in milliseconds
	end    *End
	wasm   *wasmHost
	ask    func(*Event) ([]answerMessage, error) // asks the host while the VM runs
	asked  []answerMessage                       // answers from ask, not yet delivered
}

// startConfig is the initial configuration of core.js.
type startConfig struct {
	Now       int64                      `json:"now"`
	Export    string                     `json:"export"`
	Args      json.RawMessage            `json:"args,omitempty"`
	HostAlone bool                       `json:"hostAlone"`
	Methods   []string                   `json:"methods"`
	Blocking  []string                   `json:"blocking"`
	Getters   map[string]json.RawMessage `json:"getters"`
	Constants map[string]json.RawMessage `json:"constants"`
	Globals   []string                   `json:"globals"`
	Most      int                        `json:"most"`    // maximum size of an event in bytes
	Waiting   int                        `json:"waiting"` // maximum number of unanswered calls
}

// newMachineVM creates a VM and its globals. It does not run the module.
func newMachineVM(s *startRequest, ask func(*Event) ([]answerMessage, error)) (_ *machineVM, err error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}

	m := &machineVM{vm: vm, random: rand.NewChaCha8(s.Seed), left: s.Timeout, now: s.Now.UnixMilli(), ask: ask}
	m.wasm = newWASMHost(m, s)
	vm.SetCanBlock(false) // disables Atomics.wait
	vm.SetMemoryLimit(uintptr(s.MemoryMB) << 20)
	vm.SetModuleLoader(func(_ *quickjs.VM, name string) (string, error) {
		if name != moduleName {
			return "", fmt.Errorf("%q cannot be imported while a module runs", name)
		}
		return s.Code, nil
	}, func(_ *quickjs.VM, _, name string) (string, error) { return name, nil })

	for name, f := range map[string]quickjs.HostFunc{"__entropy": m.entropy, "__url": hostURL, "__intl": m.intl, "__wasm": m.wasm.call, "__block": m.block, "__subtle": hostSubtle} {
		if err := vm.RegisterHostFunc(name, f); err != nil {
			return nil, err
		}
	}

	if m.step, err = vm.EvalValue("(() => {"+globalsJS+wasmJS+subtleJS+coreJS+"})()", quickjs.EvalGlobal); err != nil {
		return nil, err
	}

	config, err := json.Marshal(startConfig{Now: m.now, Export: s.Export, Args: s.Args, HostAlone: s.HostAlone, Methods: s.Surface.Methods, Blocking: s.Surface.Blocking, Getters: s.Surface.Getters,
		Constants: s.Surface.Constants, Globals: existing(s.AllowedGlobals), Most: MaxMessage, Waiting: maxWaiting})
	if err != nil {
		return nil, err
	}

	_, err = m.step.Call(quickjs.UndefinedValue, "start", string(config))
	return m, err
}

// entropy returns 256 random bytes as hexadecimal digits.
func (m *machineVM) entropy([]any) (any, error) {
	var b [256]byte
	_, err := m.random.Read(b[:])
	return hex.EncodeToString(b[:]), err
}

// intl adds Intl and the dependent methods of Date and Number. It is called on demand, because it
// is slower than the rest of the startup and rarely needed.
func (m *machineVM) intl([]any) (any, error) { return nil, intl.Register(m.vm) }

// begin starts the module.
func (m *machineVM) begin() *Event {
	m.call("begin")
	return m.run()
}

// block reports the module's activity to the host while a call blocks the module. It returns new
// values of getters as JSON. The other answers are delivered when the module waits for them.
func (m *machineVM) block([]any) (any, error) {
	m.timer.Stop()
	begin := time.Now()
	e := &Event{}
	text, err := m.step.Call(quickjs.UndefinedValue, "drain")
	if err != nil {
		return nil, err
	}
	said, _ := text.(string)
	if err := json.Unmarshal([]byte(said), e); err != nil {
		return nil, err
	}

	answers, err := m.ask(e)
	if err != nil { // the host is gone
		m.end = &End{Status: Crashed, Error: err.Error()}
		m.vm.Interrupt()
		return "{}", nil //nolint:nilerr // the end reports the error
	}

	m.until = m.until.Add(time.Since(begin)) // not the module's execution time
	m.timer.Reset(time.Until(m.until))
	getters := map[string]json.RawMessage{}
	for i := range answers {
		maps.Copy(getters, answers[i].Getters)
		answers[i].Getters = nil
	}
	m.asked = append(m.asked, answers...)
	values, err := json.Marshal(getters)
	return string(values), err
}

// next delivers answers and continues the module.
func (m *machineVM) next(answers []answerMessage) *Event {
	m.deliver(answers)
	return m.run()
}

// deliver passes answers to the module in order.
func (m *machineVM) deliver(answers []answerMessage) {
	for _, a := range answers {
		// Timers that were due before the answer fire first.
		m.fireUntil(max(a.NowMS, m.now))
		value := string(a.Value)
		a.Value = nil
		text, err := json.Marshal(a)
		if err != nil {
			m.end = &End{Status: Crashed, Error: err.Error()}
			return
		}
		m.call("answer", string(text), value)
		m.drainJobs()
	}
}

// fireUntil fires the timers that are due until now and sets the clock to now.
func (m *machineVM) fireUntil(now int64) {
	for m.end == nil {
		due, ok := m.due()
		if !ok || due > now {
			break
		}
		m.now = max(m.now, due)
		m.call("fire", m.now)
		m.drainJobs()
	}

	m.now = now
	m.call("clock", now)
}

// run runs the module until it waits for the host or ends.
func (m *machineVM) run() *Event {
	var logs []Log
	for {
		m.drainJobs()
		if len(m.asked) > 0 && m.end == nil {
			answers := m.asked
			m.asked = nil
			m.deliver(answers)
			continue
		}
		e := m.event()
		logs = append(logs, e.Logs...)
		e.Logs = logs
		if e.End != nil || len(e.Calls) > 0 {
			return e
		}

		waiting, _ := m.call("waiting").(bool)
		due, ok := m.due()
		switch {
		case m.end != nil:
			e.End = m.end
			return e
		case waiting:
			return e
		case !ok:
			m.end = &End{Status: Stalled, Error: "it waits for a promise that nothing will settle: there is no call and no timer that could"}
			e.End = m.end
			return e
		}

		m.sleep(time.Duration(max(due-m.now, 0)) * time.Millisecond)
		m.fireUntil(max(due, m.now))
	}
}

// sleep sleeps for d, limited by the remaining execution time.
func (m *machineVM) sleep(d time.Duration) {
	time.Sleep(min(d, m.left))
	if m.left -= d; m.left <= 0 {
		m.end = timedOut()
	}
}

func timedOut() *End { return &End{Status: TimedOut, Error: "its time is over"} }

// due returns the time of the next timer, and whether there is one.
func (m *machineVM) due() (int64, bool) {
	switch v := m.call("due").(type) {
	case int:
		return int64(v), true
	case float64:
		return int64(v), true
	}
	return 0, false
}

// event returns the module's new activity and removes it from core.js.
func (m *machineVM) event() *Event {
	e := &Event{}
	text, _ := m.call("drain").(string)
	if m.end == nil {
		if err := json.Unmarshal([]byte(text), e); err != nil {
			m.end = &End{Status: Crashed, Error: "its machine says nothing that can be read: " + err.Error()}
		}
	}
	if m.end != nil {
		e.End = m.end
	}
	m.end = e.End
	return e
}

// call calls core.js within the remaining execution time. It does nothing after the end.
func (m *machineVM) call(what string, args ...any) any {
	var v any
	m.timed(func() (err error) {
		v, err = m.step.Call(quickjs.UndefinedValue, append([]any{what}, args...)...)
		return err
	})
	return v
}

// drainJobs runs the jobs of settled promises.
func (m *machineVM) drainJobs() {
	for more := true; more && m.end == nil; {
		m.timed(func() error {
			n, err := m.vm.ExecutePendingJobs()
			if more = n >= maxJobs; more {
				return nil // the error only reports that there are more jobs
			}
			return err
		})
	}
}

// timed runs do and ends the module if it exceeds its execution time or if do fails.
func (m *machineVM) timed(do func() error) {
	if m.end != nil {
		return
	}
	if m.left <= 0 {
		m.end = timedOut()
		return
	}

	m.until = time.Now().Add(m.left)
	// QuickJS has a timeout too, but it cannot be moved after a pause.
	m.timer = time.AfterFunc(m.left, m.vm.Interrupt)
	err := do()
	m.timer.Stop()
	m.left = time.Until(m.until)

	switch {
	case m.end != nil:
	case m.left <= 0:
		m.end = timedOut()
	case err != nil:
		m.end = endOf(err)
	}
}

// endOf returns the end of a module for an error of the VM. A module can cause errors in core.js by
// changing built-in objects.
func endOf(err error) *End {
	var e *quickjs.Error
	switch {
	case errors.As(err, &e) && e.Message == "interrupted":
		return timedOut()
	// The error is null if there is no memory for an Error object.
	case errors.As(err, &e) && (e.Message == "out of memory" || e.Error() == "null"):
		return &End{Status: Memory, Error: "it needed more memory than it was given"}
	}
	return &End{Status: Threw, Error: err.Error()}
}
