package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// Given is a server with the approved tools that a run may use.
type Given struct {
	Server Server       `json:"-"`
	Name   string       `json:"name"`
	Tools  []Definition `json:"tools"`
}

// baseSpec returns the fields that all tools of servers share. Timeout is off because the server's
// own timeout ends a call.
func baseSpec(s Server) tool.Spec {
	return tool.Spec{
		Effect: domain.EffectExternal, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere, Requires: tool.RequiresServer,
		Description: "A tool of the MCP server " + s.Name + ".", Timeout: -1,
	}
}

// OpenSpec returns a placeholder for the tools of a server. The tools themselves are known only
// after approval.
func OpenSpec(s Server) tool.Spec {
	spec := baseSpec(s)
	spec.Name, spec.Open = ToolName(s.Name, ""), true
	return spec
}

// SpecOf returns the spec of an approved tool.
func SpecOf(s Server, d Definition) (tool.Spec, error) {
	spec := baseSpec(s)
	spec.Name = ToolName(s.Name, d.Name)
	if says := d.Description(); strings.TrimSpace(says) != "" {
		spec.Description = says
	}
	if s.MayRead(d.Name) {
		spec.Writes, spec.ReadsOnly = tool.WritesNothing, func(json.RawMessage) bool { return true }
	}
	var err error
	spec.Schema, err = d.Schema(s.Name)
	return spec, err
}

// MayRead reports whether the owner declares a tool read-only.
func (s Server) MayRead(name string) bool { return matches(s.ReadOnly, name) }

// Sessions holds the servers of one run. The first call that needs a server starts it. All servers
// are stopped when the run ends.
type Sessions struct {
	book   *Book
	o      Options
	redact func(string) string
	tokens func(Server) Tokens
	news   func(ctx context.Context, s Server, what string)
	note   func(s Server, method string)
	ended  func(s Server, how shell.Ended)
	keep   Keep

	mu   sync.Mutex
	each map[string]*reached
	over bool
}

// reached is the state of one server in a run.
type reached struct {
	mu      sync.Mutex // held while the server is started and its tools are listed
	session *session
	tools   []Definition // current tools of the server
	starts  int
}

// maxStarts limits how often one run restarts a server that ends by itself.
const maxStarts = 5

// SessionOptions configures the servers of a run.
type SessionOptions struct {
	Book    *Book
	Tokens  func(Server) Tokens // nil if no server needs a sign-in
	Redact  func(string) string // removes secrets from results; optional
	Version string
	// News is called when a server's tools differ from the approved tools, once for each change.
	// Optional.
	News func(ctx context.Context, s Server, what string)
	// Declined is called when a request of a server was declined. Optional.
	Declined func(s Server, method string)
	// Ended is called when a program ends, with the files it left for its agent. Optional.
	Ended func(s Server, how shell.Ended)
	// Keep stores content other than text. If nil, such content is left out.
	Keep Keep
}

// NewSessions returns sessions without starting any server.
func NewSessions(o SessionOptions) *Sessions {
	if o.Redact == nil {
		o.Redact = func(text string) string { return text }
	}
	return &Sessions{book: o.Book, o: Options{Version: o.Version, Redact: o.Redact}, redact: o.Redact, tokens: o.Tokens, news: o.News, note: o.Declined, ended: o.Ended, keep: o.Keep, each: map[string]*reached{}}
}

// Start sets the launcher for programs.
func (s *Sessions) Start(l *shell.Launcher) { s.o.Launch = l }

// Close stops the servers. It accepts a nil receiver.
func (s *Sessions) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.over = true
	all := s.each
	s.mu.Unlock()

	var ending sync.WaitGroup
	for _, r := range all {
		ending.Go(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.session != nil {
				r.session.close()
				r.session = nil
			}
		})
	}
	ending.Wait()
}

func (s *Sessions) of(name string) (*reached, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, errors.New("the run is over")
	}
	if s.each[name] == nil {
		s.each[name] = &reached{}
	}
	return s.each[name], nil
}

// reach returns the session and the current tools of a server. It starts the server if necessary.
func (s *Sessions) reach(ctx context.Context, server Server) (*session, []Definition, error) {
	r, err := s.of(server.Name)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.session != nil && r.session.broken() {
		r.session.close()
		r.session = nil
	}
	if r.session == nil {
		if r.starts++; r.starts > maxStarts {
			return nil, nil, fmt.Errorf("it ended %d times in this run, and is not started again", maxStarts)
		}
		o := s.o
		o.Declined = func(method string) {
			if s.note != nil {
				s.note(server, method)
			}
		}
		o.Ended = func(how shell.Ended) {
			if s.ended != nil {
				s.ended(server, how)
			}
		}
		if s.tokens != nil {
			o.Tokens = s.tokens(server)
		}
		if r.session, err = open(ctx, server, o); err != nil {
			r.session = nil
			return nil, nil, err
		}
		r.session.stale = true
	}

	if r.session.takeStale() {
		if r.tools, err = r.session.list(ctx); err != nil {
			r.session.close()
			r.session = nil
			return nil, nil, err
		}
		if err := s.see(ctx, server, r.session, r.tools); err != nil {
			return nil, nil, err
		}
	}
	return r.session, r.tools, nil
}

// see stores the current tools of a server, and reports differences from the approved tools.
func (s *Sessions) see(ctx context.Context, server Server, one *session, found []Definition) error {
	_, news, err := s.book.See(server, found, one.says(), one.noise())
	if err == nil && news != "" && s.news != nil {
		s.news(ctx, server, news)
	}
	return err
}

// Tools returns the approved tools of a run. For each other tool in named it returns a tool that
// refuses every call with a reason. It does not start any server.
func (s *Sessions) Tools(given []Given, roots *tool.Roots, named []string) (out []tool.Tool, err error) {
	for _, g := range given {
		for _, d := range g.Tools {
			spec, err := SpecOf(g.Server, d)
			if err != nil {
				return nil, err
			}
			spec.Access = s.needs(g.Server, d.Name, roots)
			one, err := tool.DefineBySchema(spec, func(ctx context.Context, in tool.Invocation, args json.RawMessage) (tool.Envelope, error) {
				return s.call(ctx, in, g.Server, d, args), nil
			})
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}

		for _, name := range named {
			server, its, ok := SplitName(name)
			if _, approved := find(g.Tools, its); !ok || server != g.Server.Name || approved {
				continue
			}
			one, err := s.unapproved(g.Server, its)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// unapproved returns a tool that refuses every call and states the reason.
func (s *Sessions) unapproved(server Server, its string) (tool.Tool, error) {
	spec := baseSpec(server)
	spec.Name, spec.Schema, spec.Scope = ToolName(server.Name, its), json.RawMessage(`{"type":"object"}`), tool.ScopeOutside
	refused := s.notApproved(server, its)
	spec.Access = func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
		return tool.Access{Refused: &refused}, nil
	}
	return tool.DefineBySchema(spec, func(context.Context, tool.Invocation, json.RawMessage) (tool.Envelope, error) { return refused, nil })
}

func (s *Sessions) notApproved(server Server, its string) tool.Envelope {
	why := "is not approved"
	if r, err := s.book.Of(server); err == nil {
		for _, t := range r.States(server) {
			if t.Name != its {
				continue
			}
			switch t.Status {
			case StatusUnusable:
				why = "cannot be used: " + t.Why
			case StatusOff:
				why = "is left out by the tools: allow of the server"
			}
		}
	}
	return tool.Failure(tool.KindRejected, "the tool %s of the MCP server %s %s; its owner looks at it with: rouse mcp-servers show %[2]s, and approves it with: rouse mcp-servers approve %[2]s", text.OneLine(its), server.Name, why)
}

// needs returns the function that tells the authorizer which taint a call adds and which paths it
// reads and writes.
func (s *Sessions) needs(server Server, name string, roots *tool.Roots) func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return func(ctx context.Context, _ tool.Invocation, args json.RawMessage) (tool.Access, error) {
		n := tool.Access{Action: string(args), AddsTaint: tool.Untrusted, NeedsApproval: matches(server.Ask, name)}
		if server.IsOutward() {
			n.AddsTaint |= tool.Outward
		}
		if server.Private {
			n.AddsTaint |= tool.Private
		}

		if len(server.Argv) > 0 && s.o.Launch != nil {
			tier := s.o.Launch.Tier(ctx)
			if n.Tier = string(tier); tier == "D" {
				n.AddsTaint |= tool.Outward
			}
			for _, path := range server.Read { // a run may have changed these files
				n.Reads = append(n.Reads, tool.PlaceOf(path))
			}
			if server.Files != shell.ExposeNothing && server.Files != "" && roots != nil {
				program := roots.ProgramNeed()
				n.AddsTaint |= program.AddsTaint
				n.Reads = append(n.Reads, program.Reads...)
				if server.Files == shell.ExposeWriting {
					n.Writes, n.WritesMemory = program.Writes, program.WritesMemory
				}
			}
		}
		return n, nil
	}
}

// call calls an approved tool, unless the server has changed it since the approval.
func (s *Sessions) call(ctx context.Context, in tool.Invocation, server Server, d Definition, args json.RawMessage) tool.Envelope {
	one, tools, err := s.reach(ctx, server)
	if err != nil {
		return s.unreached(ctx, server, err)
	}

	now, there := find(tools, d.Name)
	switch {
	case !there:
		return tool.Failure(tool.KindNotFound, "the MCP server %s has no tool %s any more; see: rouse mcp-servers show %[1]s", server.Name, text.OneLine(d.Name))
	case now.Hash != d.Hash:
		return tool.Failure(tool.KindRejected, "the MCP server %s has changed its tool %s since it was approved, and it is off until its owner has looked: rouse mcp-servers show %[1]s, then rouse mcp-servers approve %[1]s", server.Name, text.OneLine(d.Name))
	}

	res, err := one.call(ctx, d, args)
	var said *answeredError
	switch {
	case err == nil:
		return envelope(server.Name, d, res, s.redact, s.keepFor(ctx, in))
	case errors.As(err, &said): // the server is reachable and returned an error
		return tool.Failure(tool.KindExecutionError, "the MCP server %s: %s", server.Name, s.redact(said.Error()))
	case errors.As(err, new(*unauthorizedError)):
		return tool.Failure(tool.KindRejected, "%s", err)
	}

	kind := tool.KindUnavailable
	if ctx.Err() == nil && (strings.Contains(err.Error(), "did not answer within") || errors.As(err, new(*noProgressError))) {
		kind = tool.KindTimeout
	}
	e := tool.Failure(kind, "the MCP server %s gave no result for %s: %s", server.Name, text.OneLine(d.Name), s.redact(err.Error()))
	if !server.MayRead(d.Name) {
		e.Message += ". Whether the call took effect is unknown"
		e.Retryable, e.Uncertain = false, true
	}
	return e
}

// keepFor returns a function that stores files of a call, or nil if files are not kept.
func (s *Sessions) keepFor(ctx context.Context, in tool.Invocation) func(int, string, string, []byte) (string, error) {
	if s.keep == nil {
		return nil
	}
	return func(number int, name, mediaType string, data []byte) (string, error) {
		return s.keep(ctx, in, number, name, mediaType, data)
	}
}

// unreached returns the failure for a call if its server could not be reached. The tool was not
// called.
func (s *Sessions) unreached(ctx context.Context, server Server, err error) tool.Envelope {
	if e, broken := shell.StartFailure(ctx, err); broken == nil && e.Kind != "" {
		e.Message = fmt.Sprintf("the MCP server %s was not started: %s", server.Name, s.redact(e.Message))
		return e
	}
	if errors.As(err, new(*unauthorizedError)) {
		return tool.Failure(tool.KindRejected, "%s", err)
	}
	return tool.Failure(tool.KindUnavailable, "the MCP server %s cannot be asked: %s; nothing was called", server.Name, s.redact(err.Error()))
}

// Look starts or contacts a server and stores its current tools in the book. Close stops the server
// again.
func (s *Sessions) Look(ctx context.Context, server Server) error {
	_, _, err := s.reach(ctx, server)
	if e, broken := shell.StartFailure(ctx, err); err != nil && broken == nil && e.Kind != "" {
		return errors.New(e.Message)
	}
	return err
}
