package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/tool"
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
	Free map[string]any `json:"free,omitempty"`
}

func registry(t testing.TB, run func(context.Context, tool.Invocation, arguments) (tool.Envelope, error)) *tool.Registry {
	t.Helper()
	echo, err := tool.Define(tool.Spec{Name: "echo", Effect: tool.Read, Enum: map[string][]string{"mode": {"fast", "slow"}}}, run)
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

// TestEnvelope: OSA-10, the exact shapes.
func TestEnvelope(t *testing.T) {
	for want, e := range map[string]tool.Envelope{
		`{"ok":true,"result":{"text":"hi"}}`:                                                                                                        tool.Success("hi"),
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

// TestValidation: OSA-11, every call is checked and gently corrected before the tool runs.
func TestValidation(t *testing.T) {
	r := registry(t, echo)
	for args, want := range map[string]string{
		`{"name":"x"}`:                            `{"name":"x"}`,
		`{"name":"x","count":3.0}`:                `{"name":"x","count":3}`,
		`{"name":"x","count":"3"}`:                `{"name":"x","count":3}`,
		`{"name":"x","loud":"true"}`:              `{"name":"x","loud":true}`,
		`{"name":"x","tags":"[\"a\",\"b\"]"}`:     `{"name":"x","tags":["a","b"]}`,
		`{"name":"x","count":"","mode":""}`:       `{"name":"x"}`,
		`{"name":"x","count":null}`:               `{"name":"x"}`,
		`"{\"name\":\"x\"}"`:                      `{"name":"x"}`,
		`{"name":"x","rows":[{"id":"7"}]}`:        `{"name":"x","rows":[{"id":7}]}`,
		`{"name":"x","free":{"any":[1,{"b":2}]}}`: `{"name":"x","free":{"any":[1,{"b":2}]}}`,
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
		`[1]`:                            {"", "object"},
		`{"name":`:                       {"", "not JSON"},
		`{"name":"x"} trailing`:          {"", "not JSON"},
	} {
		e, err := r.Call(t.Context(), tool.Invocation{}, "echo", json.RawMessage(args))
		if err != nil || e.OK || e.Kind != tool.KindInvalidArgs || e.Field != c.field || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s gave %+v (%v), want field %q and %q", args, e, err, c.field, c.say)
		}
	}
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

func TestUnknownTool(t *testing.T) {
	e, err := registry(t, echo).Call(t.Context(), tool.Invocation{}, "ecko", nil)
	if err != nil || e.Kind != tool.KindToolNotFound || !strings.Contains(e.Message, `did you mean "echo"?`) {
		t.Errorf("%+v (%v)", e, err)
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

func TestFilter(t *testing.T) {
	var tools []tool.Tool
	for _, name := range []string{"db_query", "db_insert", "file_read", "notify"} {
		d, err := tool.Define(tool.Spec{Name: name}, echo)
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
	if _, err := tool.NewRegistry(tools[0], tools[0]); err == nil {
		t.Error("two tools of one name were accepted")
	}
}

// TestRoots: OSA-30, no path leads out of what was granted.
func TestRoots(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"work/sub", "extra", "extra2", "drop"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"secret", "work/a", "work/sub/b", "extra/c", "extra2/d", "drop/e.csv", "drop/f.csv"} {
		if err := os.WriteFile(filepath.Join(base, file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"work/out": "../secret", "work/abs": filepath.Join(base, "secret"), "work/up": ".."} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Skip("symbolic links cannot be made here")
		}
	}
	r, err := tool.NewRoots(filepath.Join(base, "work"), []tool.Grant{{Path: filepath.Join(base, "extra")}, {Path: filepath.Join(base, "drop/e.csv"), File: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a", "./sub/../a", "sub/b", filepath.Join(base, "extra/c"), filepath.Join(base, "drop/e.csv")} {
		f, err := r.Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f.Close()
	}
	for _, path := range []string{"../secret", "sub/../../secret", filepath.Join(base, "secret"), "out", "abs", "up/secret", filepath.Join(base, "extra2/d"),
		filepath.Join(base, "drop/f.csv"), filepath.Join(base, "drop"), "", "a\x00b", "/etc/passwd", "missing"} {
		f, err := r.Open(path)
		if err == nil {
			f.Close()
			t.Errorf("%q was opened", path)
		}
		var bad *tool.PathError
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v is no *PathError", path, err)
		}
	}
	if _, err := r.At(filepath.Join(base, "extra/new"), true); err == nil {
		t.Error("a read grant lets write")
	}
}

// A hard link can be another name of a file elsewhere.
func TestHardLinks(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"work", "extra"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(base, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(secret, filepath.Join(base, "extra/innocent")); err != nil {
		t.Skip("hard links cannot be made here")
	}
	r, err := tool.NewRoots(filepath.Join(base, "work"), []tool.Grant{{Path: filepath.Join(base, "extra")}})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := r.Open(filepath.Join(base, "extra/innocent")); err == nil {
		f.Close()
		t.Error("a hard link was opened")
	}
}
