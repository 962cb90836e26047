package wire

import (
	"strings"
	"testing"

	"rouse/agent/model"
)

// TestFilterImages checks that an omitted image is replaced by a sentence with the reason, and that
// the newest images are kept.
func TestFilterImages(t *testing.T) {
	s, err := New(Endpoint{Model: "m"}, Dialect{Name: "plain", BaseURL: "http://model", Images: ImageLimits{Types: []string{"image/png"}, MaxBytes: 10, MaxTotal: 15}})
	if err != nil {
		t.Fatal(err)
	}

	png := func(n int) model.Image { return model.Image{Type: "image/png", Data: make([]byte, n)} }
	history := []model.Message{
		{Role: model.RoleUser, Text: "a", Images: []model.Image{png(6)}},
		{Role: model.RoleTool, Text: "b", Images: []model.Image{png(11), png(4), {Type: "image/bmp", Data: []byte{1}}, png(8)}},
	}
	seen, shown := s.FilterImages(history)
	if !shown || len(seen[0].Images) != 0 || len(seen[1].Images) != 2 || len(seen[1].Images[0].Data) != 4 || len(history[1].Images) != 4 || history[0].Text != "a" {
		t.Fatalf("%v: %+v, of %+v", shown, seen, history)
	}

	for i, want := range []string{"A picture (image/png of 1 KiB) is not shown: a request takes 1.431e-05 MiB of pictures, and newer ones have filled it.", "A picture (image/bmp of 1 KiB) is not shown: the provider takes image/png."} {
		if !strings.Contains(seen[i].Text, want) {
			t.Errorf("%q lacks %q", seen[i].Text, want)
		}
	}

	if !strings.Contains(seen[1].Text, "make a smaller copy") {
		t.Errorf("%q", seen[1].Text)
	}
	if !s.AdaptImages(true, ServerError{Message: "Only text is supported, no images."}) {
		t.Fatal("nothing was learned")
	}
	if seen, shown = s.FilterImages(history); shown || strings.Count(seen[1].Text, "the model m sees none (Only text is supported, no images)") != 4 {
		t.Errorf("%v: %+v", shown, seen)
	}

	plain := history[:0:0]
	if got, shown := s.FilterImages(append(plain, model.Message{Text: "a"})); shown || got[0].Text != "a" {
		t.Errorf("%v: %+v", shown, got)
	}
}

// TestAdaptImages checks that missing image support is distinguished from an error of a single
// image.
func TestAdaptImages(t *testing.T) {
	for said, want := range map[string]bool{
		"Invalid content type. image_url is only supported by certain models.":                            true,
		"image input is not supported - hint: if this is unexpected, you may need to provide mmproj":      true,
		"this model is missing data required for image input":                                             true,
		"Image input modality is not enabled for models/gemma-3":                                          true,
		"qwen3 is not a multimodal model":                                                                 true,
		"messages[1]: unknown variant `image_url`, expected `text`":                                       true,
		"No endpoints found that support image input":                                                     true,
		"image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes":                                       false,
		"Could not process image":                                                                         false,
		"Unsupported image media type: image/tiff":                                                        false,
		"You uploaded an unsupported image. Please make sure your image has one of the following formats": false,
		"This model does not support tools":                                                               false,
	} {
		s := server(t, "m")
		if got := s.AdaptImages(true, ServerError{Message: said}); got != want || s.AdaptImages(false, ServerError{Message: said}) {
			t.Errorf("%q: %v", said, got)
		}
	}
}
