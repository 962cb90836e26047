package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// resultMark begins each result of the tool of a measurement: a server that counts them
// knows which step a run is at, in whatever format it is asked.
const resultMark = "result-of "

// stubAnswers are what a server of each format streams: a call that is the n-th of its run, and
// a text at its end.
var stubAnswers = map[string]struct{ call, text string }{
	"openai": {
		call: `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_%[1]d","type":"function","function":{"name":"lookup","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"/f%[1]d\"}"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10}}

data: [DONE]

`,
		text: `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}

data: [DONE]

`,
	},
	"anthropic": {
		call: `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"stub","content":[],"usage":{"input_tokens":100,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_%[1]d","name":"lookup","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"/f%[1]d\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":10}}

event: message_stop
data: {"type":"message_stop"}

`,
		text: `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"stub","content":[],"usage":{"input_tokens":100,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Done."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":10}}

event: message_stop
data: {"type":"message_stop"}

`,
	},
	"gemini": {
		call: `data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"functionCall":{"id":"call_%[1]d","name":"lookup","args":{"path":"/f%[1]d"}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":10}}

`,
		text: `data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Done."}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":10}}

`,
	},
	"ollama": {
		call: `{"model":"stub","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_%[1]d","function":{"name":"lookup","arguments":{"path":"/f%[1]d"}}}]},"done":false}
{"model":"stub","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":100,"eval_count":10}
`,
		text: `{"model":"stub","message":{"role":"assistant","content":"Done."},"done":true,"done_reason":"stop","prompt_eval_count":100,"eval_count":10}
`,
	},
}

// formatOf tells the formats apart by what they ask for.
func formatOf(path string) string {
	for format, end := range map[string]string{"openai": "/chat/completions", "anthropic": "/v1/messages", "gemini": ":streamGenerateContent", "ollama": "/api/chat"} {
		if strings.HasSuffix(path, end) {
			return format
		}
	}
	return ""
}

// fileCalls turns the calls of a measurement's own tool into those of one that agents have.
var fileCalls = strings.NewReplacer(`"lookup"`, `"file_read"`, `"/f`, `"f`)

// stubModel answers at once. Its addresses begin with how many calls a run is to make; below
// /hold/ the answer after the last of them waits until all are released; a segment file_read
// after the number has it call that tool.
type stubModel struct {
	mu      sync.Mutex
	held    int
	release chan struct{}
}

// ServeHTTP implements http.Handler.
func (s *stubModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}

	switch r.URL.Path {
	case "/held":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprint(w, s.held)
		return
	case "/release":
		s.mu.Lock()
		defer s.mu.Unlock()
		// A closed channel wakes all that wait; those that come later get a new one.
		close(s.release)
		s.held, s.release = 0, make(chan struct{})
		return
	}

	path, hold := strings.CutPrefix(r.URL.Path, "/hold")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	steps, err := strconv.Atoi(first)
	answer, known := stubAnswers[formatOf(path)]
	if err != nil || !known {
		http.Error(w, "nobody asks for "+r.URL.Path, http.StatusNotFound)
		return
	}

	// Without a session: the requests hold all results so far, so counting them tells the step.
	n := bytes.Count(body, []byte(resultMark))
	w.Header().Set("Content-Type", "text/event-stream")
	if n < steps {
		call := fmt.Sprintf(answer.call, n+1)
		if strings.Contains(path, "/file_read/") {
			call = fileCalls.Replace(call)
		}
		_, _ = io.WriteString(w, call)
		return
	}

	if hold {
		s.mu.Lock()
		s.held++
		// Read under the lock: release replaces the channel.
		released := s.release
		s.mu.Unlock()
		<-released
	}

	_, _ = io.WriteString(w, answer.text) // a client that is gone needs none
}

// serveStubModel is the server in a process of its own: what it takes is not measured. It ends
// with its standard input, which is when the process that started it is gone.
func serveStubModel(ctx context.Context, in io.Reader, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	server := &http.Server{Handler: &stubModel{release: make(chan struct{})}, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = server.Close()
	}()

	fmt.Fprintln(out, "http://"+listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}

	return nil
}

// startStubModel starts the process; stop ends it.
func startStubModel(ctx context.Context, self string) (url string, stop func() error, err error) {
	process := exec.CommandContext(ctx, self, "bench", ChildVerb, "stub")
	in, err := process.StdinPipe()
	if err != nil {
		return "", nil, err
	}

	out, err := process.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := process.Start(); err != nil {
		return "", nil, err
	}

	stop = func() error { return errors.Join(in.Close(), process.Wait()) }
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return "", nil, errors.Join(fmt.Errorf("the stub server did not say where it is: %w", err), stop())
	}

	return url, stop, nil
}
