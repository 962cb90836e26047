package cases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agent/eval"
	"rouse/agent/model/replay"
	agentplan "rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
	"rouse/skills"
)

// anyWorkspace is the name of the workspace if the case has no name and the skill needs a
// workspace.
const anyWorkspace = "case"

// Options configure how a case is run.
type Options struct {
	Dir      string // a separate folder, which is empty or does not exist yet
	Commands bool   // allows running the programs listed in the case
}

// Report is the result of a case.
type Report = eval.Report

type played struct {
	Case
	*eval.World
	skill    *skills.Skill
	replies  []Reply // replies that were not used yet
	problems []string
}

func (p *played) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// Play runs a case of a skill. An error means that it could not be run.
func Play(ctx context.Context, s *skills.Skill, c Case, o Options) (report Report, err error) {
	report = Report{Name: c.Name, About: c.About, Problems: []string{}}
	if len(c.Commands) > 0 && !o.Commands {
		return report, fmt.Errorf("the case %s runs programs of this machine (%s); if you want that, say --commands", c.Name, strings.Join(c.Commands[0], " "))
	}
	world, err := eval.Open(ctx, o.Dir, c.Files)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()

	p := &played{Case: c, World: world, skill: s, replies: slices.Clone(c.Inbox)}
	if err := p.setUp(ctx); err != nil {
		return report, fmt.Errorf("the case %s: %w", c.Name, err)
	}
	asked, err := p.request()
	if err != nil {
		return report, err
	}

	began := time.Now()
	report.Run, err = p.Play(ctx, asked, p.reply)
	report.Took = time.Since(began)
	if err == nil {
		err = p.compare(ctx, report.Run)
	}
	report.Problems = append(report.Problems, p.problems...)
	return report, err
}

// setUp adds the skill to the world, and an agent with the grants of the case.
func (p *played) setUp(ctx context.Context) error {
	config, err := moduleapi.Config(p.skill.Dir, p.Config)
	if err != nil {
		return fmt.Errorf("config does not fit the skill: %w", err)
	}
	if p.Workspace == "" && (p.skill.Manifest.NeedsWorkspace() || len(p.State) > 0) {
		p.Workspace = anyWorkspace
	}
	if len(p.State) > 0 {
		if _, err := p.Ledger.Workspaces.Create(ctx, workspace.Author{}, workspace.Workspace{Agent: eval.Worker, Skill: p.skill.Name, Name: p.Workspace, State: p.State}); err != nil {
			return fmt.Errorf("state: %w", err)
		}
	}

	a := agentplan.Agent{Name: eval.Worker, Workdir: p.Work}
	plan := agentplan.Plan{Modules: map[string]*skills.Skill{p.skill.Name: p.skill}, ModuleSettings: map[string]agentplan.ModuleSettings{p.skill.Name: {Config: config}}}
	for _, argv := range p.Commands {
		a.Commands = append(a.Commands, shell.Grant{Argv: argv})
	}
	for name, value := range p.Secrets {
		a.Secrets, plan.Secrets = append(a.Secrets, tool.SecretGrant{Name: name, Value: value}), append(plan.Secrets, value)
	}
	if moduleapi.AsksModel(p.skill.Manifest) {
		if a.Model, err = p.model(); err != nil {
			return err
		}
	}
	plan.Agents = map[string]agentplan.Agent{eval.Worker: a}
	p.Runner.Set(plan)
	return nil
}

func (p *played) model() (*agentplan.Model, error) {
	var rec replay.Recording
	for _, a := range p.Answers {
		rec.Exchanges = append(rec.Exchanges, replay.Exchange{Contains: a.Contains, Answer: replay.Answer{Text: a.Text}})
	}
	if len(rec.Exchanges) == 0 {
		// A case without answers still needs a model, so that a request to it is detected.
		rec.Exchanges = []replay.Exchange{{Answer: replay.Answer{}, Fault: &replay.Fault{Kind: "bad_request", Message: "the case has no answers, and the model was asked"}}}
	}
	provider, err := replay.New("of the case "+p.Name, rec)
	return &agentplan.Model{Name: "case", Provider: provider}, err
}

func (p *played) request() (ledger.Request, error) {
	d := ledger.TriggerDetail{Skill: p.skill.Name, SkillInput: p.Input, Workspace: p.Workspace}
	if len(d.SkillInput) == 0 {
		d.SkillInput = json.RawMessage("{}")
	}
	if p.File != "" {
		path := filepath.Join(p.Work, filepath.FromSlash(p.File))
		info, err := os.Stat(path)
		if err != nil {
			return ledger.Request{}, err
		}
		sum := sha256.Sum256([]byte(p.Files[p.File]))
		d.File = &ledger.File{Path: path, Name: info.Name(), Size: info.Size(), Hash: hex.EncodeToString(sum[:]), ModTime: info.ModTime()}
	}
	return ledger.Request{Agent: eval.Worker, Trigger: domain.TriggerManual, Detail: d}, nil
}

// reply answers an inbox item with the matching reply of the case.
func (p *played) reply(i inbox.Item) (string, bool) {
	at := slices.IndexFunc(p.replies, func(r Reply) bool { return strings.Contains(i.Title, r.Title) })
	if at < 0 {
		p.problem("it waits for an answer to %q, and inbox has none left: %s", i.Title, text.Truncate(text.Collapse(i.Message), maxShown))
		return "", false
	}

	answer := p.replies[at].Answer
	p.replies = slices.Delete(p.replies, at, at+1)
	var plain string
	if json.Unmarshal(answer, &plain) == nil {
		return plain, true
	}
	return string(answer), true
}
