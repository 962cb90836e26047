package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

type arguments struct {
	Name  string   `json:"name" jsonschema:"who"`
	Count int      `json:"count,omitempty"`
	Loud  bool     `json:"loud,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	Mode  string   `json:"mode,omitempty"`
	Rows  []struct {
		ID int `json:"id"`
	} `json:"rows,omitempty"`
	Free   map[string]any `json:"free,omitempty"`
	Counts map[string]int `json:"counts,omitempty"`
}

func registry(t testing.TB, run func(context.Context, tool.Invocation, arguments) (tool.Envelope, error)) *tool.Registry {
	t.Helper()
	echo, err := tool.Define(tool.Spec{Name: "echo", Description: "says it again", Effect: domain.EffectRead, Class: tool.ClassOther, Enum: map[string][]string{"mode": {"fast", "slow"}}}, run)
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(echo)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func echo(_ context.Context, _ tool.Invocation, a arguments) (tool.Envelope, error) {
	return tool.Success(a), nil
}

// TestEnvelope checks the exact JSON encoding of envelopes (OSA-10).
func TestEnvelope(t *testing.T) {
	row := contract.Of(t, "OSA-10")
	for _, retryable := range []bool{true, false} {
		list := row.Between("tried again: ", ". Others")
		if !retryable {
			list = row.Between("Others: ", ". Keys")
		}
		for _, kind := range list {
			raw, err := json.Marshal(tool.Failure(tool.Kind(kind), "m"))
			if want := fmt.Sprintf(`{"kind":%q,"message":"m","ok":false,"retryable":%t}`, kind, retryable); err != nil || string(raw) != want {
				t.Errorf("%s, want %s (%v)", raw, want, err)
			}
		}
	}

	whole := tool.Failure(tool.KindInvalidArgs, "m").WithField("f", "e")
	whole.Tool, whole.Result, whole.Warnings = "x", json.RawMessage(row.Quote(`{"text":"hi"}`)), []string{"w"}
	keys := map[string]any{}
	if raw, err := json.Marshal(whole); err != nil || json.Unmarshal(raw, &keys) != nil {
		t.Fatalf("%s, %v", raw, err)
	}
	listed := append(row.Between("A result is ", "; a text"), row.Between("A failure is ", ". Kinds")...)
	for _, key := range listed {
		if _, ok := keys[key]; !ok {
			t.Errorf("%v has no %s", keys, key)
		}
	}
	for key := range keys {
		if !slices.Contains(listed, key) {
			t.Errorf("the contract does not list %s", key)
		}
	}

	failed := tool.Failure(tool.KindExecutionError, "exit 1")
	failed.Result, failed.Warnings = json.RawMessage(`{"stderr":"bad"}`), []string{"w"}
	for want, e := range map[string]tool.Envelope{
		`{"kind":"execution_error","message":"exit 1","ok":false,"result":{"stderr":"bad"},"retryable":true,"warnings":["w"]}`:                      failed,
		`{"ok":true,"result":` + row.Quote(`{"text":"hi"}`) + `}`:                                                                                   tool.Success("hi"),
		`{"ok":true,"result":{"a":1},"warnings":["w"]}`:                                                                                             tool.Success(map[string]int{"a": 1}, "w"),
		`{"kind":"not_found","message":"no x","ok":false,"retryable":true}`:                                                                         tool.Failure(tool.KindNotFound, "no %s", "x"),
		`{"expected":"a path","field":"path","kind":"invalid_args","message":"m","ok":false,"retryable":true}`:                                      tool.Failure(tool.KindInvalidArgs, "m").WithField("path", "a path"),
		`{"kind":"rejected","message":"m","ok":false,"retryable":false}`:                                                                            tool.Failure(tool.KindRejected, "m"),
		`{"kind":"user_denied","message":"m","ok":false,"retryable":false}`:                                                                         tool.Failure(tool.KindUserDenied, "m"),
		`{"kind":"tool_not_found","message":"m","ok":false,"retryable":false}`:                                                                      tool.Failure(tool.KindToolNotFound, "m"),
		`{"kind":"timeout","message":"m","ok":false,"retryable":true}`:                                                                              tool.Failure(tool.KindTimeout, "m"),
		`{"kind":"unavailable","message":"m","ok":false,"retryable":true}`:                                                                          tool.Failure(tool.KindUnavailable, "m"),
		`{"kind":"execution_error","message":"the result cannot be written as JSON: json: unsupported type: chan int","ok":false,"retryable":true}`: tool.Success(make(chan int)),
	} {
		raw, err := json.Marshal(e)
		if err != nil || string(raw) != want {
			t.Errorf("%s (%v), want %s", raw, err, want)
		}

		var back tool.Envelope
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Error(err)
		}
		if again, err := json.Marshal(back); err != nil || string(again) != want {
			t.Errorf("read back as %s", again)
		}
	}
}

// TestValidation checks that the arguments of every call are validated, and that harmless errors
// are corrected, before the tool runs (OSA-11).
func TestValidation(t *testing.T) {
	row := contract.Of(t, "OSA-11")
	r := registry(t, echo)
	for args, want := range map[string]string{
		fmt.Sprintf(`{"name":"x","count":%s}`, row.Quote("3.0")):   fmt.Sprintf(`{"name":"x","count":%s}`, row.Quote("3")),
		fmt.Sprintf(`{"name":"x","count":%s}`, row.Quote(`"3"`)):   `{"name":"x","count":3}`,
		fmt.Sprintf(`{"name":"x","loud":%s}`, row.Quote(`"true"`)): fmt.Sprintf(`{"name":"x","loud":%s}`, row.Quote("true")),
		`{"name":"x"}`:                            `{"name":"x"}`,
		`{"name":"x","tags":"[\"a\",\"b\"]"}`:     `{"name":"x","tags":["a","b"]}`,
		`{"name":"x","count":"","mode":""}`:       `{"name":"x"}`,
		`{"name":"x","count":null}`:               `{"name":"x"}`,
		`"{\"name\":\"x\"}"`:                      `{"name":"x"}`,
		`{"name":"x","rows":[{"id":"7"}]}`:        `{"name":"x","rows":[{"id":7}]}`,
		`{"name":"x","free":{"any":[1,{"b":2}]}}`: `{"name":"x","free":{"any":[1,{"b":2}]}}`,
		`{"name":"x","free":{"a":"","b":null}}`:   `{"name":"x","free":{"a":"","b":null}}`,
		`{"name":"x","counts":{"a":"7","b":2.0}}`: `{"name":"x","counts":{"a":7,"b":2}}`,
	} {
		e, err := r.Call(t.Context(), tool.Invocation{}, "echo", json.RawMessage(args))
		if err != nil || !e.OK || string(e.Result) != want {
			t.Errorf("%s gave %s %s (%v), want %s", args, e.Result, e.Message, err, want)
		}
	}

	for args, c := range map[string]struct{ field, say string }{
		`{}`:                             {"name", "missing"},
		``:                               {"name", "missing"},
		`{"name":null}`:                  {"name", "missing"},
		`{"name":"x","cuont":1}`:         {"cuont", `did you mean "count"?`},
		`{"name":5}`:                     {"name", "must be a string"},
		`{"name":"x","count":1.5}`:       {"count", "whole number"},
		`{"name":"x","count":"many"}`:    {"count", "whole number"},
		`{"name":"x","count":1e999999}`:  {"count", "whole number"},
		`{"name":"x","mode":"medium"}`:   {"mode", "one of fast, slow"},
		`{"name":"x","rows":[{"di":1}]}`: {"rows[0].di", "no argument"},
		`{"name":"x","count":1e-999999}`: {"count", "whole number"},
		`{"name":"x","counts":{"a":[]}}`: {"counts.a", "whole number"},
		`[1]`:                            {"", "object"},
		`"{\"name\":"`:                   {"", "not JSON"},
		`{"name":`:                       {"", "not JSON"},
		`{"name":"x"} trailing`:          {"", "not JSON"},
	} {
		e, err := r.Call(t.Context(), tool.Invocation{}, "echo", json.RawMessage(args))
		if err != nil || e.OK || string(e.Kind) != row.Quote("invalid_args") || e.Field != c.field || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s gave %+v (%v), want field %q and %q", args, e, err, c.field, c.say)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		waits, err := tool.Define(tool.Spec{Name: "waits", Description: "waits", Effect: domain.EffectRead, Class: tool.ClassOther}, func(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
			<-ctx.Done()
			return tool.Envelope{}, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		r, err := tool.NewRegistry(waits)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Call(t.Context(), tool.Invocation{}, "waits", json.RawMessage(`{}`))
		if took := time.Since(began); err != nil || e.Kind != tool.KindTimeout || took != time.Duration(row.Number("120"))*time.Second {
			t.Errorf("after %s: %+v, %v", took, e, err)
		}
	})
}

func FuzzValidation(f *testing.F) {
	r := registry(f, echo)
	f.Add(`{"name":"x","count":"3","rows":[{"id":1}]}`)
	f.Fuzz(func(t *testing.T, args string) {
		if _, err := r.Call(t.Context(), tool.Invocation{}, "echo", json.RawMessage(args)); err != nil {
			t.Error(err)
		}
	})
}

// TestUnknownTool checks that a call of an unknown tool returns tool_not_found with the most
// similar name and all names (UNI-14).
func TestUnknownTool(t *testing.T) {
	r := registry(t, echo)
	for _, c := range []struct {
		of         *tool.Registry
		name, want string
	}{
		{r, "ecko", `there is no tool "ecko" here; did you mean "echo"? The tools are echo. Others need a grant of the agent's, or are left out by its tools: allow or deny.`},
		{r, "database", `there is no tool "database" here. The tools are echo. Others need a grant of the agent's, or are left out by its tools: allow or deny.`},
		{r.Filter([]string{"db_*"}, nil), "echo", `there is no tool "echo" here. There are no tools in this run. Others need a grant of the agent's, or are left out by its tools: allow or deny.`},
	} {
		e, err := c.of.Call(t.Context(), tool.Invocation{}, c.name, nil)
		if err != nil || e.Kind != tool.KindToolNotFound || e.Message != c.want {
			t.Errorf("%+v (%v), want %s", e, err, c.want)
		}
	}
}

// TestEnvelopeForModels checks that < and > are not escaped in the result of a tool.
func TestEnvelopeForModels(t *testing.T) {
	text, err := tool.Success("<b> & 3 > 2").MarshalJSON()
	if want := `{"ok":true,"result":{"text":"<b> & 3 > 2"}}`; err != nil || string(text) != want {
		t.Errorf("%s (%v), want %s", text, err, want)
	}
}

// TestCancelledCall checks that a cancelled call returns execution_error with the cause (UNI-14).
func TestCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("a person asked")) })
		e, err := registry(t, func(ctx context.Context, _ tool.Invocation, _ arguments) (tool.Envelope, error) {
			<-ctx.Done()
			return tool.Envelope{}, ctx.Err()
		}).Call(ctx, tool.Invocation{}, "echo", json.RawMessage(`{"name":"x"}`))
		if err != nil || e.Kind != tool.KindExecutionError || !strings.Contains(e.Message, "a person asked") {
			t.Errorf("%+v (%v)", e, err)
		}
	})
}

// TestLateWrite checks that the message of a timeout contains whether the call may have taken
// effect.
func TestLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := tool.Define(tool.Spec{Name: "send", Description: "sends", Effect: domain.EffectExternal, Class: tool.ClassOther}, func(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
			<-ctx.Done()
			return tool.Envelope{}, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}

		r, err := tool.NewRegistry(d)
		if err != nil {
			t.Fatal(err)
		}

		start := time.Now()
		e, err := r.Call(t.Context(), tool.Invocation{}, "send", nil)
		if err != nil || e.Kind != tool.KindTimeout || !strings.Contains(e.Message, "unknown") || time.Since(start) != 2*time.Minute {
			t.Errorf("%+v (%v) after %s", e, err, time.Since(start))
		}
	})
}

// TestWritesTo checks that calls that write the same file have the same path, even if they name the
// file differently.
func TestWritesTo(t *testing.T) {
	type args struct {
		Path string `json:"path"`
	}
	d, err := tool.Define(tool.Spec{Name: "w", Description: "writes", Effect: domain.EffectWrite, Class: tool.ClassEdit, Path: "path", Canonical: path.Clean}, func(context.Context, tool.Invocation, args) (tool.Envelope, error) {
		return tool.Success("fine"), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for raw, want := range map[string]string{`{"path":"a"}`: "a", `{"path":"./x/../a"}`: "a", `"{\"path\":\"./a\"}"`: "a", `{}`: "", `{"pat":"a"}`: ""} {
		if got := d.WritePath(json.RawMessage(raw)); got != want {
			t.Errorf("%s writes to %q, want %q", raw, got, want)
		}
	}
}

func TestToolThatFails(t *testing.T) {
	broken := errors.New("the host is broken")
	for name, c := range map[string]struct {
		run  func(context.Context, tool.Invocation, arguments) (tool.Envelope, error)
		kind tool.Kind
		err  error
	}{
		"panics": {func(context.Context, tool.Invocation, arguments) (tool.Envelope, error) { panic("oops") }, tool.KindExecutionError, nil},
		"breaks": {func(context.Context, tool.Invocation, arguments) (tool.Envelope, error) {
			return tool.Envelope{}, broken
		}, "", broken},
		"hangs": {func(ctx context.Context, _ tool.Invocation, _ arguments) (tool.Envelope, error) {
			<-ctx.Done()
			return tool.Envelope{}, ctx.Err()
		}, tool.KindTimeout, nil},
		"is deaf": {func(context.Context, tool.Invocation, arguments) (tool.Envelope, error) {
			time.Sleep(time.Hour)
			return tool.Success("late"), nil
		}, tool.KindTimeout, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := registry(t, c.run).Call(t.Context(), tool.Invocation{}, "echo", json.RawMessage(`{"name":"x"}`))
				if e.Kind != c.kind || !errors.Is(err, c.err) {
					t.Errorf("%+v, %v", e, err)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestFileFaults checks that a file system fault fails only its call, unless the fault concerns the
// host's own files. The result of a call with an effect must contain a warning that the effect may
// have happened.
func TestFileFaults(t *testing.T) {
	t.Parallel()
	gone := &fs.PathError{Op: "lstat", Path: "/gone", Err: syscall.ENOENT}
	for name, c := range map[string]struct {
		err    error
		breaks bool
	}{
		"a folder that is gone": {gone, false},
		"one with more to say":  {fmt.Errorf("the folder of x cannot be found: %w", gone), false},
		"a failed rename":       {&os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EIO}, false},
		"too many open files":   {os.NewSyscallError("pipe2", syscall.EMFILE), false},
		"the ledger":            {fmt.Errorf("it is not recorded: %w", &domain.HostError{Err: gone}), true},
		"a lost connection":     {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"anything else":         {errors.New("the host is broken"), true},
	} {
		for effect, uncertain := range map[domain.Effect]bool{domain.EffectRead: false, domain.EffectDatabase: false, domain.EffectWrite: true, domain.EffectExternal: true} {
			failing, err := tool.Define(tool.Spec{Name: "fails", Description: "fails", Effect: effect, Class: tool.ClassOther, Access: tool.NoNeeds}, func(context.Context, tool.Invocation, arguments) (tool.Envelope, error) {
				return tool.Envelope{}, c.err
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := tool.NewRegistry(failing)
			if err != nil {
				t.Fatal(err)
			}

			e, err := r.Call(t.Context(), tool.Invocation{}, "fails", json.RawMessage(`{"name":"x"}`))
			if c.breaks {
				if !errors.Is(err, c.err) {
					t.Errorf("%s, %s: %+v, %v", name, effect, e, err)
				}
				continue
			}
			if err != nil || e.Kind != tool.KindExecutionError || !strings.Contains(e.Message, c.err.Error()) || e.Uncertain != uncertain || e.Tool != "fails" {
				t.Errorf("%s, %s: %+v, %v", name, effect, e, err)
			}
		}
	}
}

func TestFilter(t *testing.T) {
	var tools []tool.Tool
	for _, name := range []string{"db_query", "db_insert", "file_read", "notify"} {
		d, err := tool.Define(tool.Spec{Name: name, Description: name, Effect: domain.EffectRead, Class: tool.ClassOther}, echo)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, d)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Filter([]string{"db_*", "notify"}, []string{"db_insert"}).Names(), " "); got != "db_query notify" {
		t.Error(got)
	}
	if got := len(r.Filter(nil, nil).Names()); got != 4 {
		t.Error(got)
	}

	if got := r.Filter([]string{"*"}, []string{"db_[insert"}).Names(); len(got) > 0 {
		t.Errorf("a deny that cannot be read left %v", got)
	}
	if _, err := tool.NewRegistry(tools[0], tools[0]); err == nil {
		t.Error("two tools of one name were accepted")
	}
}

// TestSchemasAreMadeOnce checks that the schema of a tool is created once and shared by all runs,
// and created again if an allowed value differs.
func TestSchemasAreMadeOnce(t *testing.T) {
	t.Parallel()
	schema := func(names ...string) json.RawMessage {
		t.Helper()
		one, err := tool.Define(tool.Spec{Name: "greet", Description: "greets", Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing, Enum: map[string][]string{"name": names}},
			func(context.Context, tool.Invocation, arguments) (tool.Envelope, error) {
				return tool.Success(nil), nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return one.ModelSchema()
	}

	first, again, other := schema("Ada", "Grace"), schema("Ada", "Grace"), schema("Ada")
	if &first[0] != &again[0] {
		t.Error("the same schema was made twice")
	}
	if !strings.Contains(string(first), "Grace") || strings.Contains(string(other), "Grace") {
		t.Errorf("%s and %s", first, other)
	}
}
