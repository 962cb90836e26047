package web

import (
	"context"
	"io"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/skills/install"
)

// Backend is the process that serves a home: what the API and the pages need beside the ledger. Methods return an *api.Error if the
// request was wrong. It is an interface because package daemon, which implements it, imports this package.
type Backend interface {
	Status(ctx context.Context) (api.Status, error)
	// Doctor checks all that would stop a run; offline asks nothing of the network. If ctx allows no program, what takes one is as it
	// was found last.
	Doctor(ctx context.Context, offline bool) ([]api.Check, error)
	// Reload reads the configuration again and puts it into force.
	Reload(ctx context.Context) (api.Reload, error)
	// ConfigProblem returns why the configuration on disk is not in use, or "". If load is true, it loads a newer configuration first.
	ConfigProblem(ctx context.Context, load bool) string
	// BackUp makes a backup of the whole home.
	BackUp(ctx context.Context, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error)
	// Engine says where the ledger is, and who works on it.
	Engine(ctx context.Context) (api.Engine, error)
	// Notify sends a text to a channel at once.
	Notify(ctx context.Context, channel, text string) (sentTo string, err error)

	Jobs(ctx context.Context) ([]api.Job, error)
	Agents(ctx context.Context) ([]api.Agent, error)
	// Next lists the next n occurrences of a job, or of every job when it is "".
	Next(ctx context.Context, job string, n int) ([]api.Occurrence, error)
	// Known refuses a name that neither the configuration nor history can mean, naming the nearest.
	Known(job, agent string) error
	// Backfill queues the past instants of a job that did not run, or says which it would.
	Backfill(ctx context.Context, job string, request api.BackfillRequest) (api.Backfill, error)
	// Budget says what models cost today.
	Budget(ctx context.Context) (api.Budget, error)
	// Cost foresees what the coming week costs, of a job or of all ("").
	Cost(ctx context.Context, job string) (api.Cost, error)

	// Fire queues a run and returns its id.
	Fire(ctx context.Context, request api.RunRequest) (int64, error)
	// Undo undoes what a finished run did to files and to its agent's database. It calls progress
	// with the number of changelog entries that are done.
	Undo(ctx context.Context, run ledger.Run, request api.UndoRequest, progress func(done, of int64)) (api.Undo, error)
	// Cancelled is called after a run was cancelled while it waited.
	Cancelled(ctx context.Context, run ledger.Run)
	// Pending says what a run waits for.
	Pending(ctx context.Context, run ledger.Run) (api.Pending, error)
	// Recording exports everything that is kept of a finished run, as a file.
	Recording(ctx context.Context, run int64) ([]byte, error)
	// Replay plays a finished run again without any effect, as its job is configured now.
	Replay(ctx context.Context, run int64) (api.Replay, error)

	// Checkout returns the checkout of a run, nil if it has none; with diff also its changes.
	Checkout(ctx context.Context, run ledger.Run, diff bool) (*api.Checkout, error)
	// Waiting returns the checkouts whose branches wait to be applied or discarded.
	WaitingCheckouts(ctx context.Context) ([]api.Checkout, error)
	Apply(ctx context.Context, run ledger.Run, ask api.ApplyRequest) (api.Checkout, error)
	Discard(ctx context.Context, run ledger.Run) (api.Checkout, error)

	// Database lends an agent's database until release is called.
	Database(ctx context.Context, agent string) (db *agentdb.DB, release func(), err error)
	// Databases is the pool, for what can be done with a database that cannot be opened. It refuses an
	// unknown agent.
	Databases(agent string) (*agentdb.Pool, error)
	// Kept are the places of all that an agent keeps: its database, and where it may write.
	Kept(agent string) ([]ledger.Place, error)
	// PlaceOf is what is at a path, by its name and its identity: a file that was renamed keeps its labels.
	PlaceOf(path string) ledger.Place
	// Idle refuses while a run of an agent is unfinished; with force one that waits does not count.
	Idle(ctx context.Context, agent string, force bool) error
	// Reconsider has the queued runs checked again: what blocked them may be gone.
	Reconsider()

	Pause(ctx context.Context, request api.PauseRequest) (api.Paused, error)
	Resume(ctx context.Context, scope, name string) (api.Resumed, error)

	// Wakes lists the agents that plan, or one of them, with their wakes and limits.
	Wakes(ctx context.Context, agent string) ([]api.AgentWake, error)
	// SetWake plans an agent's next wake for its owner. What is left out stays as it was planned.
	SetWake(ctx context.Context, request api.WakeRequest) (api.PlannedWake, error)
	CancelWake(ctx context.Context, agent string) (api.CancelledWake, error)

	// Why explains the instants of a job around a time, or up to now when it is "".
	Why(ctx context.Context, job, at string, n int) (api.Why, error)
	// WhyFile says what the jobs that watch its folder make of a file, or of each file in a folder.
	WhyFile(ctx context.Context, path string) ([]api.WhyFile, error)

	// Skills are all of them, and why others are not loaded.
	Skills(ctx context.Context) (install.Inventory, error)
	// Skill is all that is shown of one: what it asks for, its instructions and docs (OSL-34).
	Skill(ctx context.Context, name string) (install.Detail, error)

	SignIns(ctx context.Context) ([]api.SignIn, error)
	RemoveSignIn(ctx context.Context, name string) error
	// SignInLink is the link that an item of the inbox asks its owner to open, "" where it asks for something else.
	SignInLink(ctx context.Context, i ledger.Item) (string, error)
	// AnswerSignIn signs in with what was pasted as the answer to an item; false for an item that asks for something else.
	AnswerSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error)

	MCPServers(ctx context.Context) ([]api.MCPServer, error)
	LookAtMCPServer(ctx context.Context, name string, how api.MCPLook) (api.MCPServer, error)
	ApproveMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	RevokeMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	SignInAtMCPServer(ctx context.Context, name string, in api.MCPReply) (api.MCPSignIn, error)

	Webhooks(ctx context.Context) ([]api.Webhook, error)

	Access(ctx context.Context) (api.Access, error)
	// Login makes a link that logs a browser in once, and leads to a page.
	Login(ctx context.Context, path string) (api.Login, error)
	// EndSession logs a browser out.
	EndSession(ctx context.Context, id string) error
	// RotateToken makes another token and logs everybody out.
	RotateToken(ctx context.Context) error

	// Zone is the time zone of the configuration.
	Zone() *time.Location
	AgentNames() []string
	Channels() []string
	// Definition returns a job as it is in its file, without secrets.
	Definition(job string) (api.Definition, error)
	// Simulate plays the schedules from now on, and returns the instants of a job and the time that they reach to. It ends early
	// if there are very many.
	Simulate(ctx context.Context, job string, length time.Duration) (out []api.Occurrence, until time.Time, err error)
	// OpenFile opens a regular file. It follows no link where agents or strangers can make links.
	OpenFile(path string) (io.ReadCloser, error)
}
