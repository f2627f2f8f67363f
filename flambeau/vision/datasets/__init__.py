"""Data sets of images, with torchvision's names and files."""

from .annotated import SBU, Cityscapes, Flickr8k, Flickr30k, Kitti, SBDataset, WIDERFace
from .arrays import FER2013, SEMEION, STL10, SVHN, USPS, MovingMNIST
from .caltech import Caltech101, Caltech256
from .celeba import CelebA
from .cifar import CIFAR10, CIFAR100
from .coco import CocoCaptions, CocoDetection
from .fakedata import FakeData
from .flow import HD1K, FlyingChairs, FlyingThings3D, KittiFlow, Sintel
from .folder import DatasetFolder, ImageFolder
from .for_transforms import wrap_dataset_for_transforms_v2
from .imagenet import ImageNet
from .listed import (
    DTD,
    GTSRB,
    SUN397,
    Country211,
    EuroSAT,
    FGVCAircraft,
    Flowers102,
    Food101,
    Imagenette,
    OxfordIIITPet,
    RenderedSST2,
    StanfordCars,
)
from .mnist import EMNIST, KMNIST, MNIST, QMNIST, FashionMNIST
from .phototour import PhotoTour
from .places365 import Places365
from .scenes import LSUN, PCAM, CLEVRClassification, INaturalist, LFWPairs, LFWPeople, LSUNClass, Omniglot
from .stereo import (
    CarlaStereo,
    CREStereo,
    ETH3DStereo,
    FallingThingsStereo,
    InStereo2k,
    Kitti2012Stereo,
    Kitti2015Stereo,
    Middlebury2014Stereo,
    SceneFlowStereo,
    SintelStereo,
)
from .video import HMDB51, UCF101, Kinetics
from .vision import StandardTransform, VisionDataset
from .voc import VOCDetection, VOCSegmentation

__all__ = [
    "CIFAR10", "CIFAR100", "DTD", "EMNIST", "FER2013", "GTSRB", "KMNIST", "MNIST", "QMNIST", "SEMEION", "STL10",
    "SUN397", "SVHN", "USPS", "Caltech101", "Caltech256", "CelebA", "CocoCaptions", "CocoDetection", "Country211",
    "DatasetFolder", "EuroSAT", "FGVCAircraft", "FakeData", "FashionMNIST", "Flowers102", "Food101", "ImageFolder",
    "ImageNet", "Imagenette", "OxfordIIITPet", "RenderedSST2", "StandardTransform", "StanfordCars", "VOCDetection",
    "VOCSegmentation", "VisionDataset",
    "CLEVRClassification", "Cityscapes", "Flickr30k", "Flickr8k", "FlyingChairs", "FlyingThings3D", "HD1K", "INaturalist", "Kitti", "KittiFlow", "LFWPairs",
    "LFWPeople", "LSUN", "LSUNClass", "MovingMNIST", "Omniglot", "PCAM", "SBDataset", "SBU", "Sintel", "WIDERFace",
    "CREStereo", "CarlaStereo", "ETH3DStereo", "FallingThingsStereo", "HMDB51", "InStereo2k", "Kinetics", "Kitti2012Stereo", "Kitti2015Stereo",
    "Middlebury2014Stereo", "PhotoTour", "Places365", "SceneFlowStereo", "SintelStereo", "UCF101",
    "wrap_dataset_for_transforms_v2",
]  # fmt: skip
