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

// Given is a server with the tools of it that a run has: as their owner approved them.
type Given struct {
	Server Server       `json:"-"`
	Name   string       `json:"name"`
	Tools  []Definition `json:"tools"`
}

// baseSpec is what all tools of servers have in common. Their calls end by the clocks of their servers.
func baseSpec(s Server) tool.Spec {
	return tool.Spec{
		Effect: domain.EffectExternal, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere, Requires: tool.RequiresServer,
		Description: "A tool of the MCP server " + s.Name + ".", Timeout: -1,
	}
}

// OpenSpec stands for the tools of a server, which are known only once their owner has approved them.
func OpenSpec(s Server) tool.Spec {
	spec := baseSpec(s)
	spec.Name, spec.Open = ToolName(s.Name, ""), true
	return spec
}

// SpecOf is what is known of an approved tool.
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

// MayRead says whether its owner says of a tool that it only reads.
func (s Server) MayRead(name string) bool { return matches(s.ReadOnly, name) }

// Sessions are the servers of one run: each is started by the first call that needs it, and all end with the run.
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

// reached is a server of a run.
type reached struct {
	mu      sync.Mutex // held while it is started and asked which tools it has
	session *session
	tools   []Definition // it has now
	starts  int
}

// maxStarts is how often one run starts a server that ends by itself.
const maxStarts = 5

// SessionOptions are what the servers of a run need.
type SessionOptions struct {
	Book    *Book
	Tokens  func(Server) Tokens // nil: nobody signs in
	Redact  func(string) string // secrets out of what servers answer
	Version string
	// News is told what of a server is not as its owner approved it, once for each change.
	News func(ctx context.Context, s Server, what string)
	// Declined is told what a server asked for and did not get.
	Declined func(s Server, method string)
	// Ended is told how a program ended, with what it left where its agent would come upon it.
	Ended func(s Server, how shell.Ended)
	// Keep stores content that is not text. Nil leaves such content out.
	Keep Keep
}

// NewSessions starts nothing yet.
func NewSessions(o SessionOptions) *Sessions {
	if o.Redact == nil {
		o.Redact = func(text string) string { return text }
	}
	return &Sessions{book: o.Book, o: Options{Version: o.Version, Redact: o.Redact}, redact: o.Redact, tokens: o.Tokens, news: o.News, note: o.Declined, ended: o.Ended, keep: o.Keep, each: map[string]*reached{}}
}

// Start has programs started by a launcher.
func (s *Sessions) Start(l *shell.Launcher) { s.o.Launch = l }

// Close ends the servers; nil has none.
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

// reach gives the session of a server, started if need be, and the tools that it has now.
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

// see keeps which tools a server has, and tells its owner what is not as they approved it.
func (s *Sessions) see(ctx context.Context, server Server, one *session, found []Definition) error {
	_, news, err := s.book.See(server, found, one.says(), one.noise())
	if err == nil && news != "" && s.news != nil {
		s.news(ctx, server, news)
	}
	return err
}

// Tools are the tools of a run: those that were approved, and for a list of calls those beside them that it names, which are refused
// with a reason. Nothing is started for it.
func (s *Sessions) Tools(given []Given, roots *tool.Roots, named []string) (out []tool.Tool, err error) {
	for _, g := range given {
		for _, d := range g.Tools {
			spec, err := SpecOf(g.Server, d)
			if err != nil {
				return nil, err
			}
			spec.Needs = s.needs(g.Server, d.Name, roots)
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

// unapproved is a tool that a list of calls names and nobody approved: it says why it is not called.
func (s *Sessions) unapproved(server Server, its string) (tool.Tool, error) {
	spec := baseSpec(server)
	spec.Name, spec.Schema, spec.Scope = ToolName(server.Name, its), json.RawMessage(`{"type":"object"}`), tool.ScopeOutside
	refused := s.notApproved(server, its)
	spec.Needs = func(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
		return tool.Need{Refused: &refused}, nil
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

// needs tells the authorizer what the calls of a tool bring and reach.
func (s *Sessions) needs(server Server, name string, roots *tool.Roots) func(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return func(ctx context.Context, _ tool.Invocation, args json.RawMessage) (tool.Need, error) {
		n := tool.Need{Action: string(args), AddsTaint: tool.Untrusted, NeedsApproval: matches(server.Ask, name)}
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
			for _, path := range server.Read { // a run may have written there
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

// call calls a tool that was approved, if it still is what was approved.
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
	case errors.As(err, &said): // it has answered, and is there
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

// keepFor returns a function that keeps files of a call, or nil.
func (s *Sessions) keepFor(ctx context.Context, in tool.Invocation) func(int, string, string, []byte) (string, error) {
	if s.keep == nil {
		return nil
	}
	return func(number int, name, mediaType string, data []byte) (string, error) {
		return s.keep(ctx, in, number, name, mediaType, data)
	}
}

// unreached is the answer to a call whose server was not reached. Nothing was called.
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

// Look starts a server, or asks at its address, to see which tools it has, and ends it again.
func (s *Sessions) Look(ctx context.Context, server Server) error {
	_, _, err := s.reach(ctx, server)
	if e, broken := shell.StartFailure(ctx, err); err != nil && broken == nil && e.Kind != "" {
		return errors.New(e.Message)
	}
	return err
}
