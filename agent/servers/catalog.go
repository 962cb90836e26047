// Package servers manages the MCP servers of the plan: the approvals of their tools, the sign-ins
// of the owner, and the connections of runs. It also manages the sign-ins of skills.
package servers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/preflight"
	"rouse/agent/programs"
	"rouse/agent/runlog"
	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/inbox"
	"rouse/internal/noexec"
	"rouse/internal/text"
)

// Catalog holds the MCP servers of the plan and the approvals of their tools.
type Catalog struct {
	ledger   *ledger.Ledger
	log      *slog.Logger
	plan     *plan.Current
	programs *programs.Hosts
	book     *mcp.Book
	signIns  *SignIns
	version  string // version of this program, as reported to servers
	folder   string // folder for files that runs receive
}

// Options holds the dependencies of a Catalog.
type Options struct {
	Ledger   *ledger.Ledger // optional
	Log      *slog.Logger
	Plan     *plan.Current
	Programs *programs.Hosts
	Approved string // folder for approvals of tools; optional
	Received string // folder for files that runs receive
	Version  string
	SignIns  *SignInOptions // optional
}

// New returns the MCP servers of a plan, and the sign-ins of these servers and of skills.
func New(o Options) (*Catalog, *SignIns, error) {
	r := &Catalog{ledger: o.Ledger, log: o.Log, plan: o.Plan, programs: o.Programs, book: mcp.NewBook(o.Approved), version: o.Version, folder: o.Received}
	var err error
	r.signIns, err = openSignIns(r, o.SignIns)
	return r, r.signIns, err
}

// Connections holds the MCP servers of one attempt.
type Connections struct {
	given    []mcp.Given
	sessions *mcp.Sessions
}

// Tools returns the tools of the servers. called holds the tools that a playbook names.
func (c *Connections) Tools(launcher *shell.Launcher, roots *tool.Roots, called []string) ([]tool.Tool, error) {
	c.sessions.Start(launcher)
	return c.sessions.Tools(c.given, roots, called)
}

// Close stops the servers. c may be nil.
func (c *Connections) Close() {
	if c != nil {
		c.sessions.Close()
	}
}

// Given returns the MCP servers of a run with their approved tools.
func (r *Catalog) Given(t *plan.Task) (out []mcp.Given) {
	if !t.UsesServers() {
		return nil
	}
	for _, s := range t.Agent.Servers {
		rec, err := r.book.Of(s)
		if err != nil { // without approvals, all tools are unapproved
			r.log.Warn("no tool of an MCP server can be used", "server", s.Name, "agent", t.Agent.Name, "error", err)
		}
		given := mcp.Given{Server: s, Name: s.Name, Tools: rec.ApprovedTools(s)}
		// If the owner is signed in, the server's data is private.
		given.Server.Private = s.Private || rec.Client != nil && !s.Public
		out = append(out, given)
	}
	return out
}

// Connect connects an attempt to the given servers, which may come from a recording. It returns nil
// if given is empty. The first call starts a server. The authorizer is optional.
func (r *Catalog) Connect(t *plan.Attempt, g *permit.Authorizer, given []mcp.Given) *Connections {
	c := &Connections{given: slices.Clone(given)}
	for i := range c.given {
		if g := &c.given[i]; g.Server.Name == "" { // recordings do not contain settings
			g.Server = mcp.Server{Name: g.Name}
			if k := slices.IndexFunc(t.Agent.Servers, func(s mcp.Server) bool { return s.Name == g.Name }); k >= 0 {
				g.Server = t.Agent.Servers[k]
			}
		}
	}
	if len(c.given) == 0 {
		return nil
	}

	t.Received = r.receivedFolder(t.Run.ID)
	c.sessions = mcp.NewSessions(mcp.SessionOptions{
		Keep: r.keepReceived(t.Redactor().Replace),
		Book: r.book, Tokens: r.signIns.tokens, Version: r.version, Redact: t.Redactor().Replace,
		News: func(ctx context.Context, s mcp.Server, what string) {
			q := inbox.Question{Title: "the tools of the MCP server " + s.Name + " are not as you approved them",
				Message: fmt.Sprintf("The MCP server %s (%s) has other tools than you approved: %s. What has changed or is new is off until you approve it. Look: rouse mcp-servers show %[1]s; then: rouse mcp-servers approve %[1]s", s.Name, s.Where(), what)}
			if err := r.ledger.Inbox.AddRunInfo(context.WithoutCancel(ctx), t.Run.ID, q); err != nil {
				r.log.Error("what an MCP server has changed cannot be put into the inbox", "server", s.Name, "error", err)
			}
		},
		Declined: func(s mcp.Server, method string) { r.recordDeclined(t.Run, s, method) },
		Ended: func(s mcp.Server, how shell.Ended) {
			if s.Files == shell.ExposeWriting && g != nil {
				if err := g.ProgramEnded(context.Background()); err != nil {
					r.log.Error("what an MCP server wrote after its last call cannot be labelled", "server", s.Name, "run", t.Run.ID, "error", err)
				}
			}
			r.recordServerEnd(t.Run, s, how)
		},
	})
	return c
}

// Unapproved returns why a tool of a server cannot be called, or "" if it is approved. name is the
// name that the run uses.
func (r *Catalog) Unapproved(s mcp.Server, name string) string {
	rec, err := r.book.Of(s)
	if err != nil {
		return err.Error()
	}
	_, its, _ := mcp.SplitName(name)
	if slices.ContainsFunc(rec.ApprovedTools(s), func(d mcp.Definition) bool { return d.Name == its }) {
		return ""
	}
	return fmt.Sprintf("the tool %s of the MCP server %s is not approved; look: rouse mcp-servers show %[2]s; then: rouse mcp-servers approve %[2]s", its, s.Name)
}

// CalledOf returns the called tools that belong to a server.
func CalledOf(s mcp.Server, called []string) (out []string) {
	for _, name := range called {
		if server, _, ok := mcp.SplitName(name); ok && server == s.Name {
			out = append(out, name)
		}
	}
	return out
}

// ProgramProblem returns why the program of a server cannot be started, or "".
func ProgramProblem(s mcp.Server) string {
	switch name := s.Argv[0]; {
	case filepath.IsAbs(name):
		if why := preflight.Program(name); why != "" {
			return fmt.Sprintf("of the MCP server %s: %s", s.Name, why)
		}
	case !strings.ContainsAny(name, `/\`) && !shell.HasProgram(name):
		return fmt.Sprintf("the program %s of the MCP server %s is not installed; install it, or write its path under argv", name, s.Name)
	}
	return ""
}

// recordDeclined records a request of a server that was declined.
func (r *Catalog) recordDeclined(run ledger.Run, s mcp.Server, method string) {
	r.log.Info("an MCP server asked for something that no server gets", "server", s.Name, "method", method, "job", run.Job, "run", run.ID)
	if err := runlog.AppendEvent(context.Background(), r.ledger, run, "mcp.declined", map[string]string{"server": s.Name, "method": method}); err != nil {
		r.log.Error("what an MCP server asked for cannot be put on record", "server", s.Name, "error", err)
	}
}

// recordServerEnd records the files that a server left behind.
func (r *Catalog) recordServerEnd(run ledger.Run, s mcp.Server, how shell.Ended) {
	if err := r.programs.RecordEnded(context.Background(), run, how); err != nil {
		r.log.Error("what an MCP server left cannot be settled", "server", s.Name, "run", run.ID, "error", err)
	}
}

// State is the state of an MCP server for display.
type State struct {
	mcp.Server
	Record mcp.Record
	Agents []string
	Tools  []mcp.ToolState
	Err    error // why the record cannot be read, or nil
}

// List returns the configured MCP servers, sorted by name. It does not start them.
func (r *Catalog) List() (out []State) {
	p := r.plan.Load()
	all := p.ServersByName()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		st := State{Server: s}
		st.Record, st.Err = r.book.Of(s)
		st.Tools = st.Record.States(s)
		for _, a := range p.Agents {
			if slices.ContainsFunc(a.Servers, func(one mcp.Server) bool { return one.Name == name }) {
				st.Agents = append(st.Agents, a.Name)
			}
		}
		slices.Sort(st.Agents)
		out = append(out, st)
	}
	return out
}

// Get returns the server with the given name.
func (r *Catalog) Get(name string) (State, bool) {
	all := r.List()
	i := slices.IndexFunc(all, func(s State) bool { return s.Name == name })
	if i < 0 {
		return State{}, false
	}
	return all[i], true
}

// Look starts a server, lists its tools and stops it. The program gets no folders and no network,
// because it may not be approved. If as names an agent, the server gets the access that it has in
// runs of that agent. Then the places that it may write to are labelled.
func (r *Catalog) Look(ctx context.Context, name, as string) (st State, err error) {
	st, ok := r.Get(name)
	switch {
	case !ok:
		return st, &plan.NotConfiguredError{Kind: "MCP server", Name: name}
	case as != "" && !slices.Contains(st.Agents, as):
		return st, fmt.Errorf("the agent %s does not have it; write its name under mcp: of the agent, or name another", as)
	case noexec.Is(ctx):
		return st, noexec.Err
	}

	p := r.plan.Load()
	server, t := st.Server, &plan.Attempt{Task: plan.Task{Agent: p.Agents[as], Plan: p}}
	if as == "" {
		server.Files, server.Network = shell.ExposeNothing, false
		dir, err := os.MkdirTemp("", "rouse-mcp-")
		if err != nil {
			return st, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		t.Agent = plan.Agent{Name: "mcp", Workdir: dir}
	} else if err := permit.MakeWorkdir(&t.Task); err != nil {
		return st, fmt.Errorf("the workdir of agent %s cannot be made: %w", as, err)
	}
	roots, err := permit.Roots(r.ledger, t, nil)
	if err != nil {
		return st, err
	}
	launcher, err := r.programs.Launcher(t, roots)
	if err != nil {
		return st, err
	}

	if len(server.Argv) > 0 {
		if err := r.recordLook(ctx, server, as, roots); err != nil {
			return st, err
		}
	}
	sessions := mcp.NewSessions(mcp.SessionOptions{Book: r.book, Tokens: r.signIns.tokens, Version: r.version, Redact: t.Redactor().Replace,
		Ended: func(s mcp.Server, how shell.Ended) { r.recordServerEnd(ledger.Run{}, s, how) }}) //nolint:contextcheck // the end is recorded even if the caller has stopped waiting
	sessions.Start(launcher)
	defer sessions.Close()
	if err := sessions.Look(ctx, server); err != nil {
		if as == "" && (st.Network || st.Files != shell.ExposeNothing && st.Files != "") && len(st.Agents) > 0 {
			err = &BareError{err, name, st.Agents[0]}
		}
		return st, err
	}
	st, _ = r.Get(name)
	return st, nil
}

// BareError means that a server failed to list its tools without the folders and the network that
// its runs give it.
type BareError struct {
	err           error
	server, agent string
}

func (e *BareError) Error() string {
	return fmt.Sprintf("%v; it was started without folders and without a network, since you may have approved nothing of it; to give it those of an agent: rouse mcp-servers show %s --as %s", e.err, e.server, e.agent)
}

func (e *BareError) Unwrap() error { return e.err }

// recordLook records that a server is started outside of a run, and labels the places that it may
// write to.
func (r *Catalog) recordLook(ctx context.Context, s mcp.Server, as string, roots *tool.Roots) error {
	if s.Files == shell.ExposeWriting {
		need := roots.ProgramNeed()
		read, err := r.ledger.Labels.Of(ctx, need.Reads...)
		if err != nil {
			return err
		}
		labels := tool.Untrusted | need.AddsTaint | tool.ParseTaint(read)
		if err := r.ledger.Labels.Add(ctx, labels.String(), need.Writes...); err != nil {
			return err
		}
	}
	return runlog.AppendEvent(ctx, r.ledger, ledger.Run{}, "mcp.looked", map[string]any{"server": s.Name, "agent": as, "network": s.Network, "files": cmp.Or(s.Files, shell.ExposeNothing)})
}

// Approve approves the named tools of a server, or all tools if tools is empty. It checks that the
// tools still have the hashes that the owner was shown, unless shown is nil.
func (r *Catalog) Approve(ctx context.Context, name string, tools []string, shown map[string]string) (approved []string, unusable map[string]string, err error) {
	st, ok := r.Get(name)
	if !ok {
		return nil, nil, &plan.NotConfiguredError{Kind: "MCP server", Name: name}
	}
	approved, unusable, err = r.book.Approve(st.Server, tools, shown)
	if err != nil {
		return nil, nil, err
	}
	return approved, unusable, r.recordServerChange(ctx, "mcp.approved", name, approved)
}

// Revoke revokes the approvals of the named tools, or all if tools is empty.
func (r *Catalog) Revoke(ctx context.Context, name string, tools []string) ([]string, error) {
	st, ok := r.Get(name)
	if !ok {
		return nil, &plan.NotConfiguredError{Kind: "MCP server", Name: name}
	}
	revoked, err := r.book.Revoke(st.Server, tools)
	if err != nil {
		return nil, err
	}
	return revoked, r.recordServerChange(ctx, "mcp.revoked", name, revoked)
}

func (r *Catalog) recordServerChange(ctx context.Context, kind, server string, tools []string) error {
	return runlog.AppendEvent(ctx, r.ledger, ledger.Run{}, kind, map[string]any{"server": server, "tools": tools})
}

// TooWeak returns why calls of a server's program are refused in the runs of one of its agents, or
// "". Responses of servers are untrusted, which requires the strongest sandbox unless min_tier is
// set.
func (r *Catalog) TooWeak(ctx context.Context, st State) string {
	if len(st.Argv) == 0 {
		return ""
	}
	p := r.plan.Load()
	for _, name := range st.Agents {
		t := plan.Task{Agent: p.Agents[name]}
		box, err := r.programs.Sandbox(t.Agent.Unconfined)
		if err != nil {
			return err.Error()
		}
		if tier, reasons := box.Tier(ctx); string(tier) > cmp.Or(t.MinTier(), "A") {
			return fmt.Sprintf("programs are confined on tier %s here, and runs of the agent %s that have read what a server answers ask for tier %s: %s; or set min_tier: %s of the agent",
				tier, name, cmp.Or(t.MinTier(), "A"), strings.Join(reasons, "; "), tier)
		}
	}
	return ""
}

const maxReceived = 256 << 20

// receivedFolder returns the folder for files that a run receives from MCP servers.
func (r *Catalog) receivedFolder(run int64) string {
	return filepath.Join(r.folder, fmt.Sprintf("%d.files", run))
}

// keepReceived returns a function that stores content from an MCP server. It stores the content as
// an artifact and as a file that the run can read.
func (r *Catalog) keepReceived(redact func(string) string) mcp.Keep {
	return func(ctx context.Context, in tool.Invocation, number int, name, mediaType string, data []byte) (string, error) {
		ctx = context.WithoutCancel(ctx)
		kept, err := r.ledger.Artifacts.List(ctx, in.Run)
		if err != nil {
			return "", err
		}
		size := int64(len(data))
		for _, a := range kept {
			size += a.Size
		}
		if size > maxReceived {
			return "", fmt.Errorf("a run has at most %s of artifacts", text.Size(maxReceived))
		}
		if utf8.Valid(data) { // secrets in other content cannot be recognized
			data = []byte(redact(string(data)))
		}

		at, err := writeReceived(r.receivedFolder(in.Run), name, data)
		if err != nil {
			return "", err
		}
		_, err = r.ledger.Artifacts.Add(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt},
			artifact.Artifact{Agent: in.Agent, Key: fmt.Sprintf("%s/file-%d", in.Key, number), Name: name, Description: mediaType}, data)
		return at, err
	}
}

// writeReceived writes data to a file with the given name. If another file has the name, it appends
// a number.
func writeReceived(folder, name string, data []byte) (string, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	ext := path.Ext(name)
	for n := 1; ; n++ {
		at := filepath.Join(folder, name)
		if n > 1 {
			at = filepath.Join(folder, fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext))
		}
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			if same, err := os.ReadFile(at); err == nil && bytes.Equal(same, data) {
				return at, nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		return at, errors.Join(err, f.Close())
	}
}
