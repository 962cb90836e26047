//go:build unix

package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/openai"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

const (
	stepsServerKey = "ROUSE_BENCH_MODEL"
	stepsResult    = "result of " // begins each result; the model counts them
)

// TestServeSteps is not a test. It is the model of BenchmarkSteps in a process of its own. It
// answers each request with one call, and after the given number of calls with a text. It ends with
// its standard input.
func TestServeSteps(t *testing.T) {
	calls, err := strconv.Atoi(os.Getenv(stepsServerKey))
	if err != nil {
		t.Skip("started by BenchmarkSteps")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		delta, reason := `{"content":"Done."}`, "stop"
		if n := bytes.Count(body, []byte(stepsResult)); n < calls {
			delta = fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":"lookup","arguments":"{\"path\":\"/f%[1]d\"}"}}]}`, n)
			reason = "tool_calls"
		}
		fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":%s,"finish_reason":"%s"}]}`+"\n\ndata: [DONE]\n\n", delta, reason)
	}))
	fmt.Println(server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkSteps measures 64 concurrent runs of 100 steps. Each step calls a tool that returns 1
// KiB. "recorded" is the loop with its record in a ledger. Compare its CPU time with "bare":
// net/http and encoding/json without a record.
func BenchmarkSteps(b *testing.B) {
	const runs, steps = 64, 100
	self := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestServeSteps$")
	self.Env = append(os.Environ(), fmt.Sprint(stepsServerKey, "=", steps))
	in, err := self.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := self.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := self.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { in.Close(); _ = self.Wait() }()
	var url string
	if _, err := fmt.Fscan(out, &url); err != nil {
		b.Fatal(err)
	}

	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConnsPerHost = runs
	client := &http.Client{Transport: pool}
	recorded := recordedSteps(b, url)
	for name, run := range map[string]func(context.Context) (int, error){
		"bare":     func(ctx context.Context) (int, error) { return bareSteps(ctx, client, url) },
		"recorded": recorded,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			spent := cpuTime(b)
			for b.Loop() {
				var all sync.WaitGroup
				for range runs {
					all.Go(func() {
						if n, err := run(b.Context()); n != steps || err != nil {
							b.Error(n, err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric((cpuTime(b)-spent)*1e6/float64(b.N*runs*(steps+1)), "cpu-µs/step")
		})
	}
}

// cpuTime returns the CPU time of this process in seconds.
func cpuTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func stepsLookup(path string) string {
	return stepsResult + path + strings.Repeat("\nblue, 3 pieces, 4.50 in stock", 33)
}

// recordedSteps returns a function that makes one run with the loop and returns the number of its
// calls.
func recordedSteps(b *testing.B, url string) func(context.Context) (int, error) {
	dir := b.TempDir()
	l, err := ledger.Open(b.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	p, err := openai.New(openai.Options{BaseURL: url, Model: "stub"})
	if err != nil {
		b.Fatal(err)
	}
	type args struct {
		Path string `json:"path"`
	}
	lookup, err := tool.Define(tool.Spec{Name: "lookup", Description: "Looks something up.", Effect: domain.EffectRead, Class: tool.ClassRead, Scope: tool.ScopeAgent, Writes: tool.WritesNothing, Path: "path"},
		func(_ context.Context, _ tool.Invocation, a args) (tool.Envelope, error) {
			return tool.Success(stepsLookup(a.Path)), nil
		})
	if err != nil {
		b.Fatal(err)
	}
	registry, err := tool.NewRegistry(lookup)
	if err != nil {
		b.Fatal(err)
	}

	return func(ctx context.Context) (int, error) {
		accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		if err != nil {
			return 0, err
		}
		_, a, err := l.StartAttempt(ctx, accepted[0].Run)
		if err != nil {
			return 0, err
		}
		res, err := loop.Run(ctx, loop.Options{
			Provider: p, Registry: registry, Recorder: agent.NewRecorder(l, a, nil, true), Policy: loop.Headless(),
			Bounds: loop.Bounds{Steps: 1000, Calls: 1000}, Invocation: tool.Invocation{Run: a.Run, Attempt: 1},
			System: "You look things up.", Messages: []model.Message{{Role: model.RoleUser, Text: "Look everything up."}},
		})
		return res.Calls, errors.Join(err, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	}
}

// bareSteps makes one run like a small program, and encodes the whole conversation for each
// request.
func bareSteps(ctx context.Context, client *http.Client, url string) (calls int, err error) {
	type function struct {
		Name        string          `json:"name"`
		Arguments   string          `json:"arguments,omitempty"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	type call struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	type message struct {
		Role       string `json:"role,omitempty"`
		Content    string `json:"content"`
		ToolCalls  []call `json:"tool_calls,omitempty"`
		ToolCallID string `json:"tool_call_id,omitempty"`
	}
	chat := struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Tools    []call    `json:"tools"`
		Stream   bool      `json:"stream"`
	}{"stub", []message{{Role: "system", Content: "You look things up."}, {Role: "user", Content: "Look everything up."}},
		[]call{{Type: "function", Function: function{Name: "lookup", Description: "Looks something up.", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)}}}, true}

	for {
		body, err := json.Marshal(chat)
		if err != nil {
			return calls, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", bytes.NewReader(body))
		if err != nil {
			return calls, err
		}
		response, err := client.Do(request)
		if err != nil {
			return calls, err
		}
		var made []call
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			data, _ := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			if len(data) == 0 || data[0] != '{' {
				continue
			}
			var chunk struct{ Choices []struct{ Delta message } }
			if err := json.Unmarshal(data, &chunk); err != nil {
				return calls, err
			}
			made = append(made, chunk.Choices[0].Delta.ToolCalls...)
		}
		if err := errors.Join(lines.Err(), response.Body.Close()); err != nil || len(made) == 0 {
			return calls, err
		}

		var args struct{ Path string }
		if err := json.Unmarshal([]byte(made[0].Function.Arguments), &args); err != nil {
			return calls, err
		}
		chat.Messages = append(chat.Messages, message{Role: "assistant", ToolCalls: made}, message{Role: "tool", Content: stepsLookup(args.Path), ToolCallID: made[0].ID})
		calls++
	}
}
