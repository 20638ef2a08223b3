package messages

import (
	"encoding/json"
	"testing"
)

func TestTopicIDAsText(t *testing.T) {
	id := TopicID{0: 0xfb, 15: 1}
	b, err := json.Marshal(map[TopicID]TopicID{id: id})
	if want := `{"-wAAAAAAAAAAAAAAAAAAAQ":"-wAAAAAAAAAAAAAAAAAAAQ"}`; err != nil || string(b) != want {
		t.Fatalf("got %s, %v, want %s", b, err, want)
	}
	back := map[TopicID]TopicID{}
	if err := json.Unmarshal(b, &back); err != nil || back[id] != id {
		t.Fatalf("got %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"short"`), &id); err == nil {
		t.Fatal("a short id was read")
	}
}
