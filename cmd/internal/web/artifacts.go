package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"rouse/cmd/internal/api"
	"rouse/internal/folderzip"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/text"
)

func newArtifacts(shared []artifact.Artifact) []api.Artifact {
	return convert(shared, func(a artifact.Artifact) api.Artifact {
		return api.Artifact{ID: api.ID(a.ID), Name: a.Name, Version: a.Version, Parent: api.OptionalID(a.Parent), Size: a.Size, Hash: a.Hash, Description: a.Description, At: api.At(a.At)}
	})
}

// artifactNames returns the names of artifacts without duplicates, in the order of first sharing.
func artifactNames(shared []artifact.Artifact) []string {
	out := []string{}
	for _, a := range shared {
		if !slices.Contains(out, a.Name) {
			out = append(out, a.Name)
		}
	}
	return out
}

// withArtifacts converts runs and adds the names of their artifacts.
func (s *Runs) withArtifacts(ctx context.Context, runs ...ledger.Run) ([]api.Run, error) {
	ids := make([]int64, len(runs))
	for i, run := range runs {
		ids[i] = run.ID
	}

	// Use one query for all runs, because a listing can have a thousand.
	shared, err := s.ledger.Artifacts.List(ctx, ids...)
	if err != nil {
		return nil, err
	}

	byRun := map[int64][]artifact.Artifact{}
	for _, a := range shared {
		byRun[a.Run] = append(byRun[a.Run], a)
	}

	nodes, err := s.ledger.Nodes.List(ctx)
	if err != nil {
		return nil, err
	}

	out := make([]api.Run, len(runs))
	for i, run := range runs {
		out[i] = newRun(run, byRun[run.ID])
		if len(nodes) > 0 && run.Attempt > 0 { // several nodes share the ledger
			made, err := s.ledger.Nodes.OfAttempts(ctx, run.ID)
			if err != nil {
				return nil, err
			}
			out[i].Node = made[run.Attempt]
		}
	}

	return out, nil
}

// oneWithArtifacts converts one run. It returns err if it is not nil, so that handlers can pass
// the results of a read directly.
func (s *Runs) oneWithArtifacts(ctx context.Context, run ledger.Run, err error) (api.Run, error) {
	if err != nil {
		return api.Run{}, err
	}

	all, err := s.withArtifacts(ctx, run)
	if err != nil {
		return api.Run{}, err
	}
	return all[0], nil
}

// artifact sends the content of an artifact. Agents write artifacts, so the headers keep a browser
// from rendering them as a page.
func (s *Runs) artifact(w http.ResponseWriter, r *http.Request) {
	a, content, err := s.artifactOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	// The status has been sent, so a failure can only be logged. A disconnected client is not a
	// failure.
	if _, err := w.Write(content); err != nil && r.Context().Err() == nil {
		s.log.Warn("an artifact could not be sent", "run", a.Run, "artifact", a.ID, "error", err)
	}
}

// artifactOf reads the artifact that a request names.
func (s *Runs) artifactOf(r *http.Request) (artifact.Artifact, []byte, error) {
	run, err := runID(r.PathValue("id"))
	if err != nil {
		return artifact.Artifact{}, nil, err
	}

	n, err := parseID(r.PathValue("artifact"), "an artifact", "rouse show "+api.ID(run)+" --json")
	if err != nil {
		return artifact.Artifact{}, nil, err
	}
	return s.ledger.Artifacts.Bytes(r.Context(), run, n)
}

// artifactFiles lists the files of a shared folder.
func (s *Runs) artifactFiles(r *http.Request) (any, error) {
	a, content, err := s.artifactOf(r)
	if err != nil {
		return nil, err
	}
	files, more, err := folderzip.Files(content)
	if err != nil {
		return nil, usage("%s is no folder: only a folder that was shared, or a ZIP archive, has files", text.Visible(a.Name))
	}
	return api.ArtifactFiles{Files: orEmpty(files), More: more}, nil
}
