package metadata

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kagami/messages"
)

// TestQuotasAndClientMetricsInSnapshots: what a snapshot holds builds the same image.
func TestQuotasAndResourcesInSnapshots(t *testing.T) {
	e := messages.QuotaEntity{User: messages.QuotaPart{Set: true, Default: true}, ClientID: messages.QuotaPart{Set: true, Name: "c"}}
	u := messages.QuotaEntity{User: messages.QuotaPart{Set: true, Name: "u"}}
	value := "50000"
	d, err := EmptyImage().Apply(0, []Record{
		QuotaRecord(e, messages.QuotaFetchRate, new(1.5)), QuotaRecord(u, messages.QuotaProduceRate, new(2.0)), QuotaRecord(u, messages.QuotaRequests, new(3.0)),
		QuotaRecord(u, messages.QuotaRequests, nil),
		ConfigRecord(messages.ResourceClientMetrics, "m", "match", &value),
		ConfigRecord(messages.ResourceClientMetrics, "gone", "a", &value), ConfigRecord(messages.ResourceClientMetrics, "gone", "a", nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !d.Quotas || !d.ClientMetrics {
		t.Fatalf("delta says nothing: %+v", d)
	}
	img := d.New
	want := []Quota{{Entity: u, Limits: map[string]float64{messages.QuotaProduceRate: 2}}, {Entity: e, Limits: map[string]float64{messages.QuotaFetchRate: 1.5}}}
	for range 2 {
		if diff := cmp.Diff(want, img.Quotas()); diff != "" {
			t.Fatalf("quotas: %s", diff)
		}
		if got := img.ClientMetrics(); len(got) != 1 || got["m"]["match"] != value {
			t.Fatalf("client metrics: %v", got)
		}
		var records []Record
		img.records(func(r Record) { records = append(records, r) })
		again, err := EmptyImage().Apply(0, records)
		if err != nil {
			t.Fatal(err)
		}
		img = again.New
	}
	r := QuotaRecord(u, "k", new(1.0))
	r.Entity[0].EntityType = "planet"
	if _, err := img.Apply(9, []Record{r}); err == nil {
		t.Fatal("an unknown entity type is taken")
	}
}
