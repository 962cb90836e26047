package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// Limits of a result: the client's model pays for each token.
const (
	maxListed   = 100
	maxText     = 2000 // characters per text of a run
	maxArtifact = 4 << 20
	maxWait     = 10 * time.Minute
)

// kindInput is the kind of inbox items that a program may answer: questions, but not approvals.
const kindInput = "input"

type nothing struct{}

type listRunsArgs struct {
	Job     string `json:"job,omitempty" jsonschema:"of this job"`
	Agent   string `json:"agent,omitempty" jsonschema:"of this agent"`
	Outcome string `json:"outcome,omitempty" jsonschema:"success, nothing, partial, error, timeout, budget_exceeded, cancelled, interrupted, skipped"`
	Text    string `json:"text,omitempty" jsonschema:"with this text in a summary, an error or the output of a model"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many, 20 when absent, 100 at most"`
	Before  string `json:"before,omitempty" jsonschema:"id of a run: those before it"`
}

type runArgs struct {
	Run string `json:"run" jsonschema:"its id"`
}

type whyArgs struct {
	Job string `json:"job" jsonschema:"its name"`
	At  string `json:"at,omitempty" jsonschema:"a time, as 08:00, yesterday, 2026-11-21 15:04 or RFC 3339; now when absent"`
	N   int    `json:"n,omitempty" jsonschema:"how many instants, 10 when absent"`
}

type runJobArgs struct {
	Job   string            `json:"job" jsonschema:"its name"`
	Input map[string]string `json:"input,omitempty" jsonschema:"what its prompt or playbook names as .Input"`
	Wait  int               `json:"wait_seconds,omitempty" jsonschema:"how long to wait for its end; 0: not at all, 600 at most"`
}

type answerArgs struct {
	Item string `json:"item" jsonschema:"its id in the inbox"`
	Text string `json:"text" jsonschema:"the answer: one of the options, or text; to an item with an input schema JSON"`
}

type queryArgs struct {
	Agent  string `json:"agent" jsonschema:"whose database"`
	SQL    string `json:"sql" jsonschema:"one SELECT or WITH"`
	Params []any  `json:"params,omitempty" jsonschema:"for the question marks in it"`
	Limit  int    `json:"limit,omitempty" jsonschema:"rows, 100 when absent"`
}

type schemaArgs struct {
	Agent string `json:"agent" jsonschema:"whose database"`
}

// add registers a tool. Its calls use the API.
func add[In any](s *Server, name, says string, hints mcp.ToolAnnotations, do func(context.Context, Connection, In) (any, error)) {
	mcp.AddTool(s.Server, &mcp.Tool{Name: name, Description: says, Annotations: &hints}, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		text, err := s.ask(ctx, func(c Connection) (any, error) { return do(ctx, c, in) })
		if err != nil {
			return nil, nil, err // the client gets the error as the result of its call
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
}

func (s *Server) addTools() {
	no := false
	reads := mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	acts := mcp.ToolAnnotations{DestructiveHint: &no}

	add(s, "list_jobs", "The jobs, with what starts them, and their last and next runs.", reads, func(ctx context.Context, c Connection, _ nothing) (any, error) {
		var out []api.Job
		return out, c.Get(ctx, "/v1/jobs", nil, &out)
	})
	add(s, "list_agents", "The agents, with their jobs.", reads, func(ctx context.Context, c Connection, _ nothing) (any, error) {
		var out []api.Agent
		return out, c.Get(ctx, "/v1/agents", nil, &out)
	})
	add(s, "list_runs", "Runs, the newest first.", reads, func(ctx context.Context, c Connection, in listRunsArgs) (any, error) { return listRuns(ctx, c, in) })
	add(s, "show_run", "A run: its outcome, its steps and calls, what it shared, and what it asks.", reads, func(ctx context.Context, c Connection, in runArgs) (any, error) { return showRun(ctx, c, in.Run) })
	add(s, "why", "Why a job ran, or did not, at each of its instants, as the ledger has it.", reads, func(ctx context.Context, c Connection, in whyArgs) (any, error) {
		query := url.Values{"job": {in.Job}}
		if in.At != "" {
			query.Set("at", in.At)
		}
		if in.N > 0 {
			query.Set("n", strconv.Itoa(min(in.N, maxListed)))
		}
		var out api.Why
		return out, c.Get(ctx, "/v1/why", query, &out)
	})
	add(s, "inbox", "What waits for the owner. Questions (kind input) can be answered; everything else is for the owner.", reads, func(ctx context.Context, c Connection, _ nothing) (any, error) { return inbox(ctx, c) })
	add(s, "answer", "Answers a question of a run. Approvals, recoveries and pauses are the owner's to decide.", acts, func(ctx context.Context, c Connection, in answerArgs) (any, error) {
		var out api.Run
		err := c.Post(ctx, "/v1/inbox/"+url.PathEscape(in.Item)+"/answer", api.Answer{Text: in.Text, Kind: kindInput, Untrusted: true}, &out)
		return shortRun(out), err
	})
	add(s, "run_job", "Runs a job now, beside its schedule, and tells its run.", acts, runJob)
	add(s, "database_schema", "The tables and columns of an agent's database.", reads, func(ctx context.Context, c Connection, in schemaArgs) (any, error) {
		var out api.Schema
		return out, c.Get(ctx, "/v1/agents/"+url.PathEscape(in.Agent)+"/schema", nil, &out)
	})
	add(s, "query_database", "What an agent's database answers to one query that reads.", reads, func(ctx context.Context, c Connection, in queryArgs) (any, error) {
		var out api.Rows
		err := c.Post(ctx, "/v1/agents/"+url.PathEscape(in.Agent)+"/query", api.QueryRequest{SQL: in.SQL, Params: in.Params, Limit: in.Limit}, &out)
		return out, err
	})
}

// shortRun returns the fields of a run shown in a list.
func shortRun(r api.Run) map[string]any {
	out := map[string]any{"id": r.ID, "uri": runURI(r.ID), "job": r.Job, "agent": r.Agent, "trigger": r.Trigger, "state": r.State, "outcome": r.Outcome, "queued_at": r.QueuedAt, "finished_at": r.FinishedAt}
	for name, value := range map[string]string{"summary": r.Summary, "error": r.Error} {
		if value != "" {
			out[name] = text.Truncate(value, maxText)
		}
	}
	return out
}

func listRuns(ctx context.Context, c Connection, in listRunsArgs) (any, error) {
	limit := in.Limit
	if limit <= 0 {
		limit = 20
	}
	query := url.Values{"n": {strconv.Itoa(min(limit, maxListed))}}
	for name, value := range map[string]string{"job": in.Job, "agent": in.Agent, "outcome": in.Outcome, "text": in.Text, "before": in.Before} {
		if value != "" {
			query.Set(name, value)
		}
	}

	var runs []api.Run
	if err := c.Get(ctx, "/v1/runs", query, &runs); err != nil {
		return nil, err
	}
	out := []any{}
	for _, r := range runs {
		out = append(out, shortRun(r))
	}
	return out, nil
}

// showRun returns the details of a run with truncated texts.
func showRun(ctx context.Context, c Connection, id string) (any, error) {
	if id == "" {
		return nil, errors.New("name the run by its id")
	}
	var d api.RunDetail
	if err := c.Get(ctx, "/v1/runs/"+url.PathEscape(id), nil, &d); err != nil {
		return nil, err
	}

	out := shortRun(d.Run)
	out["attempts"], out["artifacts"], out["inbox"], out["steps"] = d.Attempts, d.ArtifactsDetail, d.Inbox, shortSteps(d.StepsDetail)
	if d.Body != "" {
		out["body"] = text.Truncate(d.Body, maxText)
	}
	return out, nil
}

func shortSteps(steps []api.Step) []any {
	out := []any{}
	for _, s := range steps {
		calls := []any{}
		for _, c := range s.Calls {
			call := map[string]any{"tool": c.Tool, "ok": c.OK, "state": c.State, "args": text.Truncate(string(c.Args), maxText), "result": text.Truncate(string(c.Result), maxText), "ms": c.DurationMS}
			if len(c.StepsDetail) > 0 {
				call["steps"] = shortSteps(c.StepsDetail)
			}
			calls = append(calls, call)
		}
		step := map[string]any{"step": s.Step, "attempt": s.Attempt, "calls": calls}
		if s.Text != "" {
			step["text"] = text.Truncate(s.Text, maxText)
		}
		out = append(out, step)
	}
	return out
}

func inbox(ctx context.Context, c Connection) (any, error) {
	var items []api.Item
	err := c.Get(ctx, "/v1/inbox", nil, &items)
	return items, err
}

// runJob starts a run and waits for its end if requested.
func runJob(ctx context.Context, c Connection, in runJobArgs) (any, error) {
	switch {
	case in.Job == "":
		return nil, errors.New("name the job")
	case !c.Executes:
		return nil, errors.New("no daemon would execute it; have the owner start one: rouse serve")
	}

	var run api.Run
	// The requesting model may have read untrusted content, which rouse cannot know.
	if err := c.Post(ctx, "/v1/runs", api.RunRequest{Job: in.Job, Input: in.Input, Untrusted: true}, &run); err != nil {
		return nil, err
	}
	if in.Wait <= 0 {
		return shortRun(run), nil
	}

	waiting, cancel := context.WithTimeout(ctx, min(time.Duration(in.Wait)*time.Second, maxWait))
	defer cancel()
	// The stream ends when the run has finished or waits for a person.
	for _, err := range c.Lines(waiting, "/v1/events", url.Values{"run": {run.ID}, "follow": {"true"}}) {
		if err != nil && waiting.Err() == nil {
			return nil, fmt.Errorf("run %s was started, and how it went on is not known: %w", run.ID, err)
		}
	}
	return showRun(ctx, c, run.ID)
}
