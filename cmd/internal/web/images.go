package web

import (
	"bytes"
	"encoding/json"
)

// summarizeImages is a recorded envelope in which what a model was shown is named by its kind
// and size: nobody reads base64.
func summarizeImages(envelope json.RawMessage) json.RawMessage {
	if !bytes.Contains(envelope, []byte(`"images":`)) {
		return envelope
	}

	var e map[string]json.RawMessage
	var images []struct {
		Type string `json:"media_type"`
		Data []byte `json:"data"`
	}
	if json.Unmarshal(envelope, &e) != nil || json.Unmarshal(e["images"], &images) != nil {
		return envelope // they are of the result
	}

	type named struct {
		Type  string `json:"media_type"`
		Bytes int    `json:"bytes"`
	}
	var names []named
	for _, i := range images {
		names = append(names, named{i.Type, len(i.Data)})
	}

	text, err := json.Marshal(names)
	if err != nil {
		return envelope
	}

	e["images"] = text
	if text, err = json.Marshal(e); err != nil {
		return envelope
	}

	return text
}
