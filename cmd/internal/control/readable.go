package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	agentplan "rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
)

// readable returns the resolved path of the file that a request names for a run of a job. The run
// can read that file, whatever the grants of its agent are.
//
// A request from the network can name only files that the job reads anyway: in its watched folder,
// or in its agent's folders if it has no watch. The owner's command can name any file. Neither can
// name a file of the home, a configuration file, or a file whose name indicates secrets.
func (x *Runs) readable(ctx context.Context, j *config.Job, path api.Path) (string, error) {
	s := x.Setup()
	p := s.Plan.Runner
	refuse := func(why string) (string, error) {
		return "", &api.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("the file %s is not given to job %s: %s", path, j.Name, why)}
	}
	if !filepath.IsAbs(string(path)) {
		return "", &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%q is not an absolute path", path), Usage: true}
	}

	// For the owner, include the folders of all agents, because they may be in the home.
	allowed := triggerFolders(j, p.Agents[j.Agent])
	onNetwork := access.OnNetwork(ctx)
	if !onNetwork {
		for _, a := range p.Agents {
			allowed = append(allowed, agentFolders(a)...)
		}
		allowed = append(allowed, tool.Grant{Path: filepath.VolumeName(string(path)) + string(filepath.Separator)})
	}
	if len(allowed) == 0 {
		return refuse("the job reads no folder; " + byCommand(j, path))
	}

	abs, err := p.Boundary.Resolve(string(path))
	if err != nil {
		return refuse(err.Error())
	}
	roots, err := tool.NewRootsWithin(p.Boundary, allowed[0].Path, allowed[1:])
	if err != nil {
		return refuse(err.Error())
	}
	roots.Mask(tool.ProtectedPaths{Hidden: slices.Concat(p.Masks.Hidden, tool.WithResolvedLinks(s.Config.Files), tool.WithResolvedLinks(places.Included(s.Config)))})
	handle, err := roots.Resolve(abs, false)
	var no *tool.Refusal
	switch {
	case err == nil:
		return abs, handle.Close()
	case errors.As(err, &no) && no.Kind == tool.KindInvalidArgs && onNetwork:
		return refuse(no.Message + "; " + byCommand(j, path))
	}
	return refuse(err.Error())
}

func byCommand(j *config.Job, path api.Path) string {
	return fmt.Sprintf("put it there, or start the run on the machine of rouse: rouse run %s --file %s", j.Name, path)
}

// triggerFolders returns the folders from which a network request can give a file to a job.
func triggerFolders(j *config.Job, a agentplan.Agent) []tool.Grant {
	if j.Watch != nil {
		return []tool.Grant{{Path: string(j.Watch.Path)}}
	}
	return agentFolders(a)
}

// agentFolders returns the folders that an agent can read, its workdir first.
func agentFolders(a agentplan.Agent) (out []tool.Grant) {
	for _, path := range slices.Concat([]string{a.Workdir}, a.Read, a.Write) {
		if path != "" {
			out = append(out, tool.Grant{Path: path})
		}
	}
	return out
}
