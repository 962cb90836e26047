package model_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"rouse/agent/model"
)

// A field that Equal left out would be sent as it was before it changed: each of them counts.
func TestEqualComparesEachField(t *testing.T) {
	differs(t, model.Message{}, model.Message.Equal)
	differs(t, model.Call{}, model.Call.Equal)
	differs(t, model.Tool{}, model.Tool.Equal)
}

func differs[T any](t *testing.T, zero T, equal func(a, b T) bool) {
	t.Helper()
	if !equal(zero, zero) {
		t.Errorf("%T is not equal to itself", zero)
	}

	of := reflect.TypeOf(zero)
	for i := range of.NumField() {
		other := zero
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		default:
			t.Fatalf("%s.%s is of a kind that this test does not know: %s", of, of.Field(i).Name, f.Kind())
		}

		if equal(zero, other) || equal(other, zero) {
			t.Errorf("%s.%s does not count", of, of.Field(i).Name)
		}
	}

	a, b := model.Message{Calls: []model.Call{{Args: json.RawMessage("1")}}}, model.Message{Calls: []model.Call{{Args: json.RawMessage("2")}}}
	if a.Equal(b) {
		t.Error("the arguments of a call do not count")
	}
}
