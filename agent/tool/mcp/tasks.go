package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/internal/progress"
	"rouse/internal/text"
)

// Tasks (protocol 2025-11-25) are calls that a server runs in the background. tools/call returns a
// task, tasks/get its state and tasks/result its result. A tool with the task support "required"
// can only be called this way. The library supports neither tasks nor the taskSupport field. It
// rejects custom requests with the name of a standard method. rouse therefore sends these requests
// under an alias, which the transport replaces.
const (
	aliasList = "rouse/tools/list"
	aliasCall = "rouse/tools/call"
)

var aliases = map[string]string{aliasList: "tools/list", aliasCall: "tools/call"}

var customMethods = []string{aliasList, aliasCall, "tasks/get", "tasks/result", "tasks/cancel"}

// customParams holds the parameters of all custom requests.
type customParams struct {
	mcp.ParamsBase
	Cursor    string          `json:"cursor,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Task      *taskWish       `json:"task,omitempty"`
	TaskID    string          `json:"taskId,omitempty"`
}

type taskWish struct {
	TTL int64 `json:"ttl"` // milliseconds that the server keeps the task
}

// customResult is the undecoded result of a custom request.
type customResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *customResult) UnmarshalJSON(raw []byte) error {
	r.raw = bytes.Clone(raw)
	return nil
}

// unalias replaces an alias with the method it stands for.
func unalias(msg jsonrpc.Message) jsonrpc.Message {
	r, ok := msg.(*jsonrpc.Request)
	if !ok || aliases[r.Method] == "" {
		return msg
	}
	named := *r
	named.Method = aliases[r.Method]
	return &named
}

// unaliasHTTP replaces an alias in the body of a request.
func unaliasHTTP(r *http.Request) (*http.Request, error) {
	if r.Method != http.MethodPost || r.GetBody == nil {
		return r, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	msg, err := jsonrpc.DecodeMessage(raw) // written by the library
	if err != nil {
		return nil, err
	}
	named := unalias(msg)
	if named == msg {
		return r, nil
	}
	if raw, err = jsonrpc.EncodeMessage(named); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return r, nil
}

// ask sends a custom request.
func (s *session) ask(ctx context.Context, method string, p *customParams) (json.RawMessage, error) {
	s.channel.begin()
	res, err := mcp.CallCustomMethod[*customParams, *customResult](ctx, s.client, method, p)
	if err != nil {
		return nil, s.reason(ctx, err)
	}
	return res.raw, nil
}

// toldTool is a tool as a server lists it.
type toldTool struct {
	mcp.Tool
	Execution json.RawMessage `json:"execution"`
}

// support returns the task support of a tool, or "" if the server states none.
func (t *toldTool) support() string {
	var e struct {
		TaskSupport string `json:"taskSupport"`
	}
	if json.Unmarshal(t.Execution, &e) != nil { // ignore other forms
		return ""
	}
	return e.TaskSupport
}

// page returns one page of the tool list.
func (s *session) page(ctx context.Context, cursor string) (tools []*toldTool, next string, err error) {
	// Later protocol versions have no such tasks, and the library must read their lists itself.
	if init := s.client.InitializeResult(); init != nil && init.ProtocolVersion > "2025-11-25" {
		s.channel.begin()
		res, err := s.client.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, "", s.reason(ctx, err)
		}
		for _, t := range res.Tools {
			tools = append(tools, &toldTool{Tool: *t})
		}
		return tools, res.NextCursor, nil
	}

	raw, err := s.ask(ctx, aliasList, &customParams{Cursor: cursor})
	if err != nil {
		return nil, "", err
	}
	var res struct {
		Tools      []*toldTool `json:"tools"`
		NextCursor string      `json:"nextCursor"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, "", fmt.Errorf("its list of tools is not understood: %s", text.OneLine(text.Truncate(err.Error(), 200)))
	}
	return res.Tools, res.NextCursor, nil
}

// task is the state of a task.
type task struct {
	ID        string  `json:"taskId"`
	Status    string  `json:"status"`
	Message   string  `json:"statusMessage"`
	UpdatedAt string  `json:"lastUpdatedAt"`
	Interval  float64 `json:"pollInterval"` // milliseconds
}

// Limits of a task.
const (
	defaultPoll  = time.Second
	shortestPoll = 50 * time.Millisecond
	longestPoll  = 30 * time.Second
	defaultTTL   = time.Hour
	cancelWithin = 2 * time.Second
)

// poll returns the time until the next request for the task's state.
func (t task) poll() time.Duration {
	if t.Interval <= 0 {
		return defaultPoll
	}
	return min(max(time.Duration(min(t.Interval, 1e6))*time.Millisecond, shortestPoll), longestPoll)
}

// noProgressError is returned if the state of a task does not change in time.
type noProgressError struct{ within time.Duration }

func (e *noProgressError) Error() string {
	return fmt.Sprintf("the task made no progress within %s, and was cancelled", e.within)
}

// callTask calls a tool as a task. The server's timeout applies to each request and to the time
// between two changes of the task's state. Only the run's deadline limits the whole task.
func (s *session) callTask(ctx context.Context, name string, args json.RawMessage) (*mcp.CallToolResult, error) {
	ttl := defaultTTL
	if end, ok := ctx.Deadline(); ok {
		ttl = time.Until(end) + time.Minute
	}
	raw, err := s.askWithin(ctx, aliasCall, &customParams{Name: name, Arguments: args, Task: &taskWish{ttl.Milliseconds()}})
	if err != nil {
		return nil, err
	}
	var created struct {
		Task *task `json:"task"`
	}
	if err := json.Unmarshal(raw, &created); err != nil || created.Task == nil || created.Task.ID == "" {
		return decodeResult(raw) // an immediate result, such as an error
	}

	t, changed := *created.Task, time.Now()
	id := t.ID
	for {
		switch t.Status {
		case "completed", "failed":
			if raw, err = s.askWithin(ctx, "tasks/result", &customParams{TaskID: id}); err != nil {
				return nil, err
			}
			return decodeResult(raw)
		case "cancelled":
			return nil, &answeredError{text.OneLine(text.Truncate("the task was cancelled: "+t.Message, 1000))}
		case "input_required":
			s.cancelTask(ctx, id)
			return nil, &answeredError{"the task wants something of its caller, which rouse gives no server"}
		}

		select {
		case <-ctx.Done():
			s.cancelTask(ctx, id)
			return nil, s.reason(ctx, context.Cause(ctx))
		case <-time.After(t.poll()):
		}
		if raw, err = s.askWithin(ctx, "tasks/get", &customParams{TaskID: id}); err != nil {
			s.cancelTask(ctx, id)
			return nil, err
		}
		var now task
		if err := json.Unmarshal(raw, &now); err != nil {
			s.cancelTask(ctx, id)
			return nil, errors.New("the state of its task is not understood")
		}
		switch now.ID = id; {
		case now != t:
			t, changed = now, time.Now()
			progress.From(ctx).Arrived(len(t.Message) + 1)
		case time.Since(changed) > s.server.timeout():
			s.cancelTask(ctx, id)
			return nil, &noProgressError{s.server.timeout()}
		}
	}
}

// askWithin sends a custom request with the timeout of a call.
func (s *session) askWithin(ctx context.Context, method string, p *customParams) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.server.timeout(), fmt.Errorf("it did not answer within %s", s.server.timeout()))
	defer cancel()
	return s.ask(ctx, method, p)
}

// cancelTask tells the server to cancel a task. Errors are ignored.
func (s *session) cancelTask(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer cancel()
	_, _ = s.ask(ctx, "tasks/cancel", &customParams{TaskID: id})
}
