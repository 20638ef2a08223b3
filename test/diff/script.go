package diff

import "slices"

// script is everything that is asked, in order.
func script() []step {
	return slices.Concat(
		versionSteps(),
		topicSteps(),
		metadataSteps(),
		produceSteps(),
		fetchSteps(),
		offsetSteps(),
		epochSteps(),
		producerIDSteps(),
		describeConfigsSteps(),
		alterConfigsSteps(),
		partitionSteps(),
		clusterSteps(),
		quotaSteps(),
		logDirSteps(),
		assignmentSteps(),
		featureSteps(),
		describeTopicSteps(),
		deleteRecordsSteps(),
		deleteTopicsSteps(),
		groupSteps(),
		txnSteps(),
		malformedSteps(),
		securitySteps(),
	)
}
