package messages

// Feature is one of the cluster's features: what level it may have, and has where
// nobody has set one (KIP-584).
type Feature struct {
	Name     string
	Min, Max int16 // levels that this build supports; Min 0: it can be turned off
	Default  int16 // level of a cluster that has no record of it
	Fixed    bool  // it can't be changed
}

// MirrorVersionFeature turns mirroring on.
const MirrorVersionFeature = "mirror.version"

// Features are the features of this build, by name.
//
// metadata.version says which release of Kafka's requests are understood: the metadata log's
// records are the cluster's own, so there is nothing to raise. group.version 1 is the
// consumer protocol (KIP-848). transaction.version 2 is an epoch per transaction (KIP-890):
// clients look at it, and speak as older ones do where it is less. Coordinators go by what a
// request says, whatever the level.
func Features() []Feature {
	const (
		kafka44      = 33
		consumers    = 1
		transactions = 2
		mirrors      = 1
	)
	return []Feature{
		{Name: "group.version", Max: consumers, Default: consumers, Fixed: true},
		{Name: "metadata.version", Min: kafka44, Max: kafka44, Default: kafka44, Fixed: true},
		{Name: MirrorVersionFeature, Max: mirrors},
		{Name: "transaction.version", Max: transactions, Default: transactions},
	}
}

// FeatureByName is the feature of that name; ok is false for an unknown one.
func FeatureByName(name string) (f Feature, ok bool) {
	for _, f := range Features() {
		if f.Name == name {
			return f, true
		}
	}
	return Feature{}, false
}

// UpgradeType says what a change of a feature's level may do (UpdateFeatures), with Kafka's
// numbers.
type UpgradeType int8

// The kinds of change.
const (
	FeatureUpgrade         UpgradeType = 1 // higher levels only
	FeatureSafeDowngrade   UpgradeType = 2 // lower ones that lose nothing
	FeatureUnsafeDowngrade UpgradeType = 3
)

// UpdateFeatures changes levels of features, all or none; one item per update.
type UpdateFeatures struct {
	Updates      []FeatureUpdate
	ValidateOnly bool
}

// FeatureUpdate asks for the level of one feature. Level 0 turns it off.
type FeatureUpdate struct {
	Name  string
	Level int16
	Type  UpgradeType
}

func (UpdateFeatures) command() {}
