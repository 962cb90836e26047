package web

import "net/http"

// Recording is a run's recording: the text of a file, as docs/recordings.md describes it.
type Recording struct {
	File string `json:"file"`
}

func (s *server) recording(r *http.Request) (any, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	text, err := s.engine.Recording(r.Context(), id)
	return Recording{string(text)}, err
}
